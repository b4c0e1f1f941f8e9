-- Fragment: flags and time of the bucket scripts, which include it as text. They are fast paths for policies whose
-- only limit is a token bucket or a leaky bucket, which most policies are. They take the same step as
-- token_bucket.lua for the usual states: no value, or one that was written under the same limit, is not ahead of the
-- clock, and whose debt does not exceed the maximum. Any other state is left to check_one.lua or prefetch.lua.
--
-- Redis pays in each call for every function that a script contains, for every function call, and for every number
-- that is packed or unpacked. So there are no helpers here but one for long values, and the reply to a charged hit is
-- the value that was written.
--
-- ARGV[1]  deadline (microseconds, 2^53 - 1 for none); the debt that a hit adds, and the maximum debt
--          with it; refill, the debt forgiven each tick; grain (microseconds); shape: the eight
--          bytes of the value between expires and debt, which are only compared; unit, the debt that a token
--          costs; the request of prefetch_bucket.lua. Then, where one is set or the time is given: flags (1: read
--          only, 2: the time is given) and now (microseconds)
--
-- takes    question, which is ARGV[1], and its numbers up to the flags; after, the place of the flags
-- sets     flags, now, tick
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
-- does not have and the tail behind them, which is rewritten for a policy of one limit. Returns nil when it is not
-- such a value, or its rest does not count any more.
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
