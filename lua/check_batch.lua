-- Decides several hits of one cost under the same limits, each on one key, as if they had come one after another.
-- The line before this file defines `algorithms`: for each code the functions roll, state and left, and the format
-- of its numbers. None of them records denied hits.
--
-- KEYS     the values, each key once
-- ARGV[1]  as in prelude.lua
-- ARGV[2]  one byte for each key: its number of hits
--
-- reply    REPLY_DONE; now (microseconds); for each key how many hits fit, expires (microseconds) and the numbers of
--          each limit, and these numbers again after the hits that fit when only some do. REPLY_FALLBACK alone for
--          a key that cannot be read or written: nothing was done for it

local limit_count, next_limit = 0, first_limit
local codes, grains, limits, periods, rates, reserves, ticks = {}, {}, {}, {}, {}, {}, {}
local rolls, makes, lefts, formats = {}, {}, {}, {}
while next_limit <= #ARGV[1] do
  limit_count = limit_count + 1
  local i = limit_count
  codes[i], grains[i], limits[i], periods[i], rates[i], reserves[i], next_limit =
    struct.unpack('<xBI3dddd', ARGV[1], next_limit)
  ticks[i] = (now - now % grains[i]) / grains[i]
  rolls[i], makes[i], lefts[i], formats[i] = unpack(algorithms[codes[i]], 1, 4)
end

local first_format = '<Bd' .. formats[1]:sub(2)

-- For each limit the result of roll and the position of its state; and the end of the last state.
local froms, tos, ats, as, bs, cs, kept_stamps, repairs = {}, {}, {}, {}, {}, {}, {}, {}
local last_frame_end

-- Rolls all limits, whose states lie in `value`: whether a hit fits, and whether a denial is written.
local function roll_all(value)
  local all_fit, is_repaired, next_frame = true, false, 9
  for i = 1, limit_count do
    local from, to = nil, next_frame + 3
    if next_frame <= #value then
      local length, start = struct.unpack('<I4', value, next_frame)
      to = start + length - 1
      if to > #value then
        error('corrupt rate limit state')
      end
      local code = length > 0 and value:byte(start)
      if code == codes[i] then
        from = start
      elseif code == TAIL_CODE and length == TAIL_LENGTH then
        to = next_frame - 1
      end
    end
    froms[i], tos[i], next_frame = next_frame, to, to + 1
    local fits
    fits, repairs[i], ats[i], as[i], bs[i], cs[i], kept_stamps[i] = rolls[i](
      value, from, to, ticks[i], cost + reserves[i], grains[i], limits[i], periods[i], rates[i], reserves[i])
    all_fit = all_fit and fits
    is_repaired = is_repaired or repairs[i]
  end
  last_frame_end = next_frame
  return all_fit or cost == 0, is_repaired
end

-- The states of all limits with `charged` added, and their expiry. A denied hit changes only states that it
-- repairs.
local function written(value, expires, charged)
  local states, expires_after = '', 0
  for i = 1, limit_count do
    local state, ends, keeps_expiry =
      makes[i](codes[i], charged, grains[i], periods[i], rates[i], ats[i], as[i], bs[i], cs[i], kept_stamps[i])
    if charged > 0 or repairs[i] then
      states = states .. struct.pack('<I4', #state) .. state
    elseif froms[i] <= #value then
      states = states .. value:sub(froms[i], tos[i])
    else
      states = states .. '\0\0\0\0'
    end
    expires_after = math.max(expires_after, expiry(ends), keeps_expiry and expires or 0)
  end
  local rest, keep_until = rest_of(value, last_frame_end, expires, limit_count)
  return states .. rest, math.max(expires_after, keep_until)
end

-- How many of `count` hits fit, the first of which does.
local function how_many_fit(count)
  for i = 1, limit_count do
    local left = lefts[i](limits[i], periods[i], ats[i], as[i], bs[i], cs[i]) - reserves[i]
    count = math.min(count, (left - left % cost) / cost)
  end
  return count
end

local function answered(fitting, expires)
  local answer = struct.pack(first_format, fitting, expires, ats[1], as[1], bs[1], cs[1])
  for i = 2, limit_count do
    answer = answer .. struct.pack(formats[i], ats[i], as[i], bs[i], cs[i])
  end
  return answer
end

local function decide(key, count)
  local value, expires = redis.call('GET', key) or '', 0
  if value ~= '' then
    expires = struct.unpack('<d', value)
    if now >= expires then
      value, expires = '', 0
    end
  end
  local all_fit, is_repaired = roll_all(value)
  if writes_nothing then
    return answered(all_fit and count or 0, expires)
  end
  local states
  if not all_fit then
    if is_repaired then
      states, expires = written(value, expires, 0)
      store(key, states, expires)
    end
    return answered(0, expires)
  end
  if count > 1 then
    local fitting = how_many_fit(count)
    states, expires = written(value, expires, fitting * cost)
    store(key, states, expires)
    local answer = answered(fitting, expires)
    if fitting < count then
      roll_all('........' .. states)
      answer = answer .. answered(0, expires):sub(10)
    end
    return answer
  end
  states, expires = written(value, expires, cost)
  store(key, states, expires)
  return answered(1, expires)
end

local answers = { struct.pack('<Bd', REPLY_DONE, now) }
for number, key in ipairs(KEYS) do
  local is_answered, answer = pcall(decide, key, ARGV[2]:byte(number))
  answers[number + 1] = is_answered and answer or string.char(REPLY_FALLBACK)
end
return table.concat(answers)
