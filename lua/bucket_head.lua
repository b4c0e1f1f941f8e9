-- What the scripts for policies of one bucket begin with: the question and the time. They are for token
-- buckets and leaky ones whose policy has no other limit, which is what most policies are, and take the same
-- step as token_bucket.lua, for what is nearly always found: no budget, or one that was written under the
-- same limit, is not ahead of the clock, and does not owe more than fits. Whatever else is found is left to
-- the script for all policies.
--
-- They are the scripts that are called most. A server pays for each function that a script contains, for
-- each call, and for each number that is packed or unpacked, so there are no functions here, and no helpers;
-- and a hit that is charged is answered with the value that is written, which tells all.
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
