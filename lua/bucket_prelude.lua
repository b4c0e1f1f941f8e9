-- What the scripts for policies of one bucket begin with: the question and the time. They are for token
-- buckets and leaky ones whose policy has no other limit, which is what most policies are, and take the same
-- step as token_bucket.lua, for what is nearly always found: no budget, or one that was written under the
-- same limit, is not ahead of the clock, and does not owe more than fits. Whatever else is found is left to
-- the script for all policies.
--
-- They are the scripts that are called most. A server pays for each function that a script contains, for
-- each call, and for each number that is packed or unpacked, so there are no helpers here but one for long
-- values; and a hit that is charged is answered with the value that is written, which tells all.
--
-- ARGV[1]  deadline (microseconds, 2^53 - 1 for none); the debt that a hit adds, and the most that there may
--          be with it; refill, the debt forgiven each tick; grain (microseconds); shape: what lies in the
--          value between expires and debt, eight bytes that are only compared; unit, the debt that a token
--          costs. Then, where one is set or the time is given: flags (1: write nothing, 2: the time is
--          given) and now (microseconds)

local pack, unpack = struct.pack, struct.unpack
local question = ARGV[1]
local deadline, price, most, refill, grain, shape, unit, after = unpack('<ddddddd', question)
local flags, now = 0, 0
if after <= #question then
  flags, now = unpack('<dd', question, after)
end
if flags < 2 then
  now = redis.call('TIME')
  now = now[1] * 1000000 + now[2]
end
if now > deadline then
  return pack('<d', now)
end

local tick = (now - now % grain) / grain

-- Reads a value that holds more than a bucket's state: the tokens refunded, or states of limits that this policy
-- does not have and the tail behind them, which then says that the last policy had one limit. Nothing when it is
-- not such a value, or its rest counts no more.
local function read_long(value)
  local length = unpack('<I4', value, 9)
  if not (length == 28 or length == 36) or #value < 12 + length or value:sub(13, 16) ~= question:sub(45, 48) then
    return nil
  end
  local expires = unpack('<d', value)
  local rest, keep_until = value:sub(13 + length), 0
  if rest ~= '' then
    local from, start = 1, 1
    while from + 3 <= #rest do
      length, start = unpack('<I4', rest, from)
      from = start + length
    end
    if length ~= 18 or from ~= #rest + 1 or rest:byte(start) ~= 0 then
      return nil
    end
    local known = rest:byte(-1)
    keep_until = unpack('<d', rest, start + 1)
    if known ~= 1 then
      if known > 1 and expires > keep_until then
        keep_until = expires
      end
      rest = rest:sub(1, start) .. pack('<d', keep_until) .. rest:sub(-9, -2) .. '\1'
    end
    if now >= keep_until then
      return nil
    end
  end
  local debt, stored_unit, at = unpack('<ddd', value, 17)
  local refunded = unpack('<I4', value, 9) == 36 and unpack('<d', value, 41) or 0
  return expires, shape, debt, stored_unit, at, refunded, rest, keep_until
end
