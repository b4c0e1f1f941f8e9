-- Decides hits of one cost under the same limits, each on one key, as if they had come one after another. A single hit
-- is a call with one key. The assembler unrolls the limits of the policy into this file: the lines from `-- @limits` to
-- `-- @end` come once for each limit, with its number in place of N, and a line `-- @each NAME` becomes the section NAME
-- of its algorithm's file; a name in capitals becomes the list of all limits, and FORMAT_ with it the format of its
-- numbers. Lines from `-- @if fixed` to `-- @end` are left out where a limit is a log, whose state has no fixed length.
--
-- Redis pays in each call for every function, table and string that a script makes. So there are none of the first in
-- the usual case, and all numbers of the message, of the value and of the reply are packed and unpacked at once.
--
-- With a value that cannot be read, or is ahead of the clock, it does nothing for the key: check.lua decides, in a second
-- call.
--
-- KEYS     the values, each key once
-- ARGV[1]  deadline (microseconds, 2^53 - 1 for none); cost; for each limit its shape (the eight bytes of a frame in front
--          of the state's numbers, which are only compared and written), head (its algorithm's code, and 256 times its
--          grain in microseconds), limit (its ceiling), period (ticks of the grain), rate (refill per tick) and reserve
--          (units that must stay free beside the cost). Then, where one is set or the time is given: flags (1: read
--          only, 2: the time is given) and now (microseconds). All are doubles
-- ARGV[2]  one byte for each key: its number of hits; missing when each has one
--
-- reply    now (microseconds), alone when the deadline had passed. Then for each key: the value that was written, when
--          all its hits are charged, no limit is a log and the states before were the usual ones; -1 - REPLY_FALLBACK,
--          when nothing was done for it; otherwise -1 - n, where n hits fit, or -1 - REPLY_REPLACED - n if their charge
--          replaced a state of another algorithm; expires (microseconds), the numbers of each limit before the hits, and
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
-- @limits
local grain_N = (head_N - head_N % 256) / 256
local tick_N, wanted_N = (now - now % grain_N) / grain_N, cost + reserve_N
local at_N = tick_N
-- @each demand
-- @each prepare
-- @end

local second, last_ttl, ttl_text = now - now % 1000000, nil, nil
local answer
local answers = #keys > 1 and { pack('<d', now) }
for number = 1, #keys do
  local count = counts and counts:byte(number) or 1
  local value = call('GET', keys[number])
  local expires, fits, is_usual, has_replaced, rest, keep_until = 0, true, true, false, '', 0
  answer = nil
  -- A loop of one round, which `break` leaves where the key is left to the general script.
  repeat
    -- @limits
    -- @each local empty
    -- @end
    if value then
      is_usual = false
      -- @if fixed
      if #value == VALUE_BYTES then
        local SHAPES
        expires, STORED = unpack('<dFORMAT_STORED', value)
        is_usual = now < expires and USUAL
      end
      -- @end
      if not is_usual then
        if #value < 8 then
          break
        end
        expires = unpack('<d', value)
        -- @if fixed
        -- @limits
        -- @each empty
        -- @end
        -- @end
        if now < expires then
          local place, repaired, stored_head = 9, false, 0
          -- @limits
          do
            local code, behind, start, is_other = head_N % 256, place, nil, false
            -- @include frame
            if start then
              local at_N, from_N, to_N = tick_N, start, behind - 1
              -- @each read
              if repaired or at_N ~= tick_N then
                break
              end
            end
            place, has_replaced = behind, has_replaced or is_other
          end
          -- @end
          if place <= #value then
            -- @include rest_of
            rest, keep_until = rest_of(value, place, expires, LIMIT_COUNT)
            if not rest then
              break
            end
          end
        else
          expires = 0
        end
      end
    end
    -- @limits
    -- @each advance
    -- @end

    if not fits or flags % 2 == 1 then
      answer = pack('<ddFORMAT_NUMBERS', (fits or cost == 0) and -1 - count or -1, expires, NUMBERS)
      break
    end
    local fitting = count
    if count > 1 then
      -- @limits
      -- @each fit
      -- @end
    end
    local ends, keeps_ttl, keeps_expiry = now, flags < 2, false
    -- @limits
    -- @each ttl
    -- @each keep
    -- @each charge
    -- @end

    -- As expiry() of prelude.lua.
    local expires_after = ends + 1000 + ((expires > 0 and expires or now + 1000) - ends - 1000) % 1000000
    if expires_after < keep_until then
      expires_after = keep_until
    end
    if keeps_expiry and expires_after < expires then
      expires_after = expires
    end
    if not (expires_after < 9007199254740992 and expires_after % 1 == 0) or expires >= 9007199254740992 then
      break
    end
    -- @if fixed
    if is_usual then
      value = pack('<dFORMAT_WRITTEN', expires_after, WRITTEN)
    else
    -- @end
      value = pack('<d', expires_after) .. STATES .. rest
    -- @if fixed
    end
    -- @end
    local stored
    if keeps_ttl and expires_after == expires then
      -- Setting the TTL again would take 6,600 of 50,000 instructions, and formatting it 1,900. The first charge of a
      -- second does, so that a TTL that was removed or shortened does not stay so.
      stored = call('SET', keys[number], value, 'KEEPTTL')
    else
      local ttl = flags < 2 and (expires_after - now + (now - expires_after) % 1000) / 1000 or 3600000
      if ttl ~= last_ttl then
        last_ttl, ttl_text = ttl, string.format('%d', ttl)
      end
      stored = call('SET', keys[number], value, 'PX', ttl_text)
    end
    if stored.err then
      break
    end
    -- @if fixed
    if is_usual then
      answer = value
    end
    if fitting < count or not is_usual then
    -- @end
      answer = pack(
        '<ddFORMAT_NUMBERS', -1 - fitting - (has_replaced and REPLY_REPLACED or 0), expires_after, NUMBERS)
    -- @if fixed
    end
    -- @end
    if fitting < count then
      -- @limits
      -- @each after
      -- @end
      answer = answer .. pack('<FORMAT_NUMBERS', AFTER)
    end
  until true

  answer = answer or pack('<d', -1 - REPLY_FALLBACK)
  if answers then
    answers[number + 1] = answer
  end
end
return answers and table.concat(answers) or pack('<d', now) .. answer
