-- What the scripts for policies of one bucket begin with: the question and the time. They are for token
-- buckets and leaky ones whose policy has no other limit, which is what most policies are, and take the same
-- step as token_bucket.lua, for what is nearly always found: no budget, or one that was written under the
-- same limit, is not ahead of the clock, and does not owe more than fits. Whatever else is found is left to
-- the script for all policies.
--
-- They are the scripts that are called most. A server pays for each function that a script contains, for
-- each call, and for each number that is packed or unpacked, so there are no functions here, and no helpers.
--
-- ARGV[1]  flags (1: write nothing, 2: the time is given); deadline (microseconds, 2^53 - 1 for none); the
--          debt that a hit adds, and the most that there may be with it; the length of the state, its
--          code and its grain, as one number; unit, the debt that a token costs; refill, the debt forgiven
--          each tick; grain (microseconds); now (microseconds), if it is given

local flags, deadline, price, most, shape, period, refill, grain, after =
  struct.unpack('<BI7I7I7I7I7I7I3', ARGV[1])
local now
if flags < 2 then
  now = redis.call('TIME')
  now = now[1] * 1000000 + now[2]
else
  now = struct.unpack('<I7', ARGV[1], after)
end
if now > deadline then
  return struct.pack('<BI7', 2, now)
end

local tick = (now - now % grain) / grain
