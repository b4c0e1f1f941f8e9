-- The first part of every general script: arguments, time, arithmetic that the algorithms share, reading and
-- writing values.
--
-- KEYS     the value of each key that limits of the policy count by; nearly always one
-- ARGV[1]  flags (1: read only, 2: the time is given, 4: another key denied the hit, which is only
--          recorded here); now and deadline (microseconds, deadline 0 for none); cost; then for each limit
--          the number of its key, its algorithm's code, grain (microseconds), limit (its ceiling), period
--          (ticks of the grain), rate (refill per tick, 1 for a log that counts denials, or the parameter of a
--          penalty box) and reserve (units that must stay free beside the cost)
-- ARGV[2]  the number of the hit's slot, 8 bytes, where there is a concurrency limit

local flags, now, deadline, cost, first_limit = struct.unpack('<Bddd', ARGV[1])
local writes_nothing = flags % 2 == 1
local time_is_given = flags % 4 >= 2
local is_denied = flags >= 4

if not time_is_given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline > 0 and now > deadline then
  return struct.pack('<Bd', REPLY_TOO_LATE, now)
end

-- a / b, rounded down; whole numbers below 2^53.
local function div(a, b)
  return (a - a % b) / b
end

-- a / b, rounded up.
local function div_up(a, b)
  local rest = a % b
  if rest == 0 then
    return a / b
  end
  return (a - rest) / b + 1
end

-- A tick of one grain in another.
local function in_grain(tick, from, to)
  if from == to then
    return tick
  end
  return div(tick * from, to)
end

-- Brings a stored tick to the present: at most one period ahead it stands still, further ahead it
-- becomes the present.
local function catch_up(stored, present, period)
  if stored > present + period then
    return present, true
  elseif stored > present then
    return stored, false
  end
  return present, false
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

-- Stores the states of all limits that count by a key, with their expiry.
local function store(key, states, expires)
  local ttl = math.max(div_up(expires - now, 1000), 1)
  if time_is_given then
    ttl = 3600000
  end
  -- The TTL is a string: Redis converts a Lua number with 17 digits, which takes far longer.
  redis.call('SET', key, struct.pack('<d', expires) .. states, 'PX', string.format('%d', ttl))
end

-- Whether a denied hit is recorded: by a log with rate 1, and by a penalty box unless it blocks already.
local function counts_denied(count, rate, fits)
  return count ~= nil and (rate == 1 or (rate > 1 and fits))
end

-- A state as it is stored, behind its length.
local function framed(state)
  return struct.pack('<I4', #state) .. state
end

-- The last frame of a value, where there is one: until when the states of unknown limits and the last reset
-- count, when that reset was (microseconds, -1 for none), and how many limits of this key the last policy had.
local TAIL_CODE, TAIL_LENGTH = 0, 18

-- The part of a value behind the states of the hit's own limits, of which there are `own`. It must be kept: the
-- states of limits that the hit's policy does not have, because another version or tier of it has more, and the
-- tail. Also returns until when it counts, and the time of the last reset. States that the last policy had count
-- until the value expires, and those behind them until the time in the tail.
local function rest_of(value, from, expires, own)
  if from > #value then
    return '', 0, -1
  end
  local at, keep_until, reset_at, has_states = from, expires, -1, false
  while at <= #value do
    local length, start = struct.unpack('<I4', value, at)
    if start + length - 1 > #value then
      error('corrupt rate limit state')
    end
    if length == TAIL_LENGTH and value:byte(start) == TAIL_CODE then
      local known
      keep_until, reset_at, known = struct.unpack('<ddB', value, start + 1)
      if own < known and expires > keep_until then
        keep_until = expires
      end
      break
    end
    has_states = has_states or length > 0
    at = start + length
  end
  if now >= keep_until or not (has_states or reset_at >= 0) then
    return '', 0, -1
  end
  local states = has_states and value:sub(from, at - 1) or ''
  local tail = struct.pack('<I4BddB', TAIL_LENGTH, TAIL_CODE, keep_until, reset_at, own)
  return states .. tail, keep_until, reset_at
end

-- The state at `from`, if it is one of the algorithm `code`, and where the next begins.
local function state_at(value, from, code)
  if from > #value then
    return nil, from, ''
  end
  local length, start = struct.unpack('<I4', value, from)
  local state = value:sub(start, start + length - 1)
  if #state < length then
    error('corrupt rate limit state')
  end
  if length == TAIL_LENGTH and state:byte(1) == TAIL_CODE then
    return nil, from, ''
  end
  if state:byte(1) ~= code then
    return nil, start + length, state
  end
  return state, start + length, state
end

-- The stored value and its expiry; an empty string and 0 where there is none, or it has expired.
local function stored_value(key)
  local value = redis.call('GET', key)
  if not value then
    return '', 0
  end
  local expires = struct.unpack('<d', value)
  if now >= expires then
    return '', 0
  end
  return value, expires
end
