-- Decides hits of one cost under the same limits, each on one key, as if they had come one after another. A single hit
-- is a call with one key. The assembler unrolls the limits of the policy into this file: a line `-- @each NAME` becomes
-- the section NAME of each limit's file (unrolled_token_bucket.lua and so on), with the limit's number in place of N;
-- a name in capitals becomes its list of all limits, and FORMAT_ with it a `d` for each number of the list. Lines
-- between `-- @if fixed` and `-- @end` are left out where a limit is a log, whose state has no fixed length.
--
-- Redis pays in each call for every function, table and string that a script makes. So there are none of the first, and
-- all numbers of the message, of the value and of the reply are packed and unpacked at once, as doubles.
--
-- It takes the same steps as the general scripts for the usual values: none, or one that was written under the same
-- limits and is not ahead of the clock. With any other value it does nothing for the key: check_one.lua or check.lua
-- decides, in a second call.
--
-- KEYS     the values, each key once
-- ARGV[1]  deadline (microseconds, 2^53 - 1 for none); cost; the numbers of each limit, which its file lists. Then,
--          where one is set or the time is given: flags (1: read only, 2: the time is given) and now (microseconds)
-- ARGV[2]  one byte for each key: its number of hits; missing when each has one
--
-- reply    now (microseconds), alone when the deadline had passed. Then for each key: the value that was written, when
--          all its hits are charged and no limit is a log; -1 - REPLY_FALLBACK, when nothing was done for it; otherwise
--          -1 - n, where n hits fit, expires (microseconds), the numbers of each limit before the hits, and
--          these numbers again after the hits that fit when only some do

local pack, unpack, call = struct.pack, struct.unpack, redis.pcall
local argument, counts, keys = ARGV[1], ARGV[2], KEYS
local deadline, cost, ARGUMENTS, next_number = unpack('<ddFORMAT_ARGUMENTS', argument)
local flags, now = 0, 0
if next_number <= #argument then
  flags, now = unpack('<dd', argument, next_number)
end
if flags < 2 then
  now = call('TIME')
  now = now[1] * 1000000 + now[2]
end
if now > deadline then
  return pack('<d', now)
end
-- @each prepare

local second, last_ttl, ttl_text = now - now % 1000000, nil, nil
local answer
local answers = #keys > 1 and { pack('<d', now) }
for number = 1, #keys do
  local count = counts and counts:byte(number) or 1
  local value = call('GET', keys[number])
  local expires, fits, rest, keep_until = 0, true, '', 0
  answer = nil
  -- A loop of one round, which `break` leaves where the key is left to the general script.
  repeat
    -- @each local empty
    if value then
      -- @if fixed
      if #value == VALUE_BYTES then
        expires, STORED = unpack('<dFORMAT_STORED', value)
      else
      -- @end
        if #value < 8 then
          break
        end
        local place
        expires, place = unpack('<d', value)
        -- @each long
        if place <= #value then
          -- As rest_of() of prelude.lua: states of limits that this policy does not have, and the tail behind them.
          local from, tail, has_states = place, nil, false
          while from + 3 <= #value do
            local length, start = unpack('<I4', value, from)
            if length == 18 and value:byte(start) == 0 then
              tail = from
              break
            end
            has_states, from = has_states or length > 0, start + length
          end
          if tail ~= #value - 21 then
            break
          end
          local reset_at, known
          keep_until, reset_at, known = unpack('<ddB', value, tail + 5)
          if known > LIMIT_COUNT and expires > keep_until then
            keep_until = expires
          end
          if now >= keep_until or not (has_states or reset_at >= 0) then
            keep_until = 0
          else
            rest = (has_states and value:sub(place, tail - 1) or '')
              .. pack('<I4BddB', 18, 0, keep_until, reset_at, LIMIT_COUNT)
          end
        end
      -- @if fixed
      end
      -- @end
      if now >= expires then
        expires, rest, keep_until = 0, '', 0
        -- @each empty
      end
    end
    -- @each advance

    if not fits or flags % 2 == 1 then
      answer = pack('<ddFORMAT_NUMBERS', (fits or cost == 0) and -1 - count or -1, expires, NUMBERS)
      break
    end
    local fitting = count
    if count > 1 then
      -- @each fit
    end
    local ends, is_long, keeps_ttl = now, rest ~= '', flags < 2
    -- @each charge

    -- As expiry() of prelude.lua.
    local expires_after = ends + 1000 + ((expires > 0 and expires or now + 1000) - ends - 1000) % 1000000
    if expires_after < keep_until then
      expires_after = keep_until
    end
    if not (expires_after < 9007199254740992 and expires_after % 1 == 0) or expires >= 9007199254740992 then
      break
    end
    -- @if fixed
    if not is_long then
      value = pack('<dFORMAT_WRITTEN', expires_after, WRITTEN)
    else
    -- @end
      -- @each state
      value = pack('<d', expires_after) .. STATES
    -- @if fixed
    end
    -- @end
    local whole = rest == '' and value or value .. rest
    local stored
    if keeps_ttl and expires_after == expires then
      -- Setting the TTL again would take 6,600 of 50,000 instructions, and formatting it 1,900. The first charge of a
      -- second does, so that a TTL that was removed or shortened does not stay so.
      stored = call('SET', keys[number], whole, 'KEEPTTL')
    else
      local ttl = flags < 2 and (expires_after - now + (now - expires_after) % 1000) / 1000 or 3600000
      if ttl ~= last_ttl then
        last_ttl, ttl_text = ttl, string.format('%d', ttl)
      end
      stored = call('SET', keys[number], whole, 'PX', ttl_text)
    end
    if stored.err then
      break
    end
    -- @if fixed
    answer = value
    if fitting < count then
    -- @end
      answer = pack('<ddFORMAT_NUMBERS', -1 - fitting, expires_after, NUMBERS)
    -- @if fixed
    end
    -- @end
    if fitting < count then
      -- @each after
      answer = answer .. pack('<FORMAT_NUMBERS', AFTER)
    end
  until true

  answer = answer or pack('<d', -1 - REPLY_FALLBACK)
  if answers then
    answers[number + 1] = answer
  end
end
return answers and table.concat(answers) or pack('<d', now) .. answer
