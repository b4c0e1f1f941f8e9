-- The first part of every general script: arguments, time, and reading a value.
--
-- KEYS     the values
-- ARGV[1]  flags (2: the time is given); now and deadline (microseconds, deadline 0 for none); cost; and what the
--          script lists
-- ARGV[2]  the id of each hit's slot, 8 bytes, where there is a concurrency limit

local pack, unpack, argument = struct.pack, struct.unpack, ARGV[1]
local flags, now, deadline, cost, first_limit = unpack('<Bddd', argument)
local time_is_given = flags >= 2

if not time_is_given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline > 0 and now > deadline then
  return pack('<Bd', REPLY_TOO_LATE, now)
end

-- a / b, rounded down; whole numbers below 2^53.
local function div(a, b)
  return (a - a % b) / b
end

-- A state as it is stored, behind its length.
local function framed(state)
  return pack('<I4', #state) .. state
end

-- The expiry of a value whose states count until `ends`, and which expires at `before` so far (microseconds, 0 for
-- none).
-- It is at least one millisecond later than needed, because Redis counts the TTL from the millisecond before the write.
-- It moves in steps of one second, from the time of the first write: most hits of a busy key leave it, and
-- check_unrolled.lua sets the TTL once a second.
local function expiry(ends, before)
  if not (before > now and before < 9007199254740992 and before % 1 == 0) then
    before = now + 1000
  end
  local needed = math.max(ends, now) + 1000
  return math.min(needed + (before - needed) % 1000000, 9007199254740991)
end

-- @include rest_of
