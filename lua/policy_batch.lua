-- Decides several hits under the same limits, each by one key, as if they had come one after another.
-- The line before this file binds `algorithms`: for each code the functions roll, state and left, and the
-- one that remembers denied hits, those that it has.
--
-- KEYS     the budgets that are spent of, each once
-- ARGV[1]  as in policy_head.lua, without a deadline and with cost 0
-- ARGV[2]  runs of equal hits: the number of their key, from 0; how many they are; flags (1: write
--          nothing); cost; deadline (microseconds, 0 for none)
--
-- answer   now (microseconds); for each run how many of it fit, then expires (microseconds) and four
--          numbers for each limit, and these once more as they are for the rest when only some fit.
--          254 alone for a run that came after its deadline, 255 alone for one that has to be asked by
--          itself, because its key cannot be read or written: neither has changed anything

local TOO_LATE, ALONE = string.char(254), string.char(255)

local limit_count, next_limit = 0, first_limit
local codes, grains, limits, periods, rates, reserves, ticks = {}, {}, {}, {}, {}, {}, {}
local rolls, makes, lefts, counts = {}, {}, {}, {}
while next_limit <= #ARGV[1] do
  limit_count = limit_count + 1
  local i = limit_count
  local _
  _, codes[i], grains[i], limits[i], periods[i], rates[i], reserves[i], next_limit =
    struct.unpack('<BBI3I7I7I7I7', ARGV[1], next_limit)
  ticks[i] = div(now, grains[i])
  local functions = algorithms[codes[i]]
  rolls[i], makes[i], lefts[i], counts[i] = functions[1], functions[2], functions[3], functions[4]
end

-- What each key has stored: for limit i of a key the state at `limit_count * number + i`, and its bytes
-- also where they are no state of this limit.
local states, raws, expirations, is_changed = {}, {}, {}, {}

local function read(number, first)
  local value, expires = stored_value(KEYS[number + 1])
  local from = 8
  for i = 1, limit_count do
    states[first + i], from, raws[first + i] = state_at(value, from, codes[i])
  end
  expirations[number] = expires
end

-- What a roll gives for each limit.
local ats, as, bs, cs, kept_stamps = {}, {}, {}, {}, {}
local repairs, counted = {}, {}

-- Rolls all limits: whether a hit of `cost` fits, and whether a denial is written.
local function roll_all(first, cost_of_one)
  local all_fit, is_written = true, false
  for i = 1, limit_count do
    local fits, repaired
    fits, repaired, ats[i], as[i], bs[i], cs[i], kept_stamps[i] = rolls[i](
      states[first + i], ticks[i], cost_of_one + reserves[i], grains[i], limits[i], periods[i], rates[i], reserves[i])
    all_fit = all_fit and (fits or cost_of_one == 0)
    repairs[i] = repaired
    counted[i] = counts[i] and counts_denied(counts[i], rates[i], fits)
    is_written = is_written or repaired or counted[i]
  end
  return all_fit, is_written
end

local function words()
  local packed = struct.pack('<I7I7I7I7', ats[1], as[1], bs[1], cs[1])
  for i = 2, limit_count do
    packed = packed .. struct.pack('<I7I7I7I7', ats[i], as[i], bs[i], cs[i])
  end
  return packed
end

-- How many of `count` equal hits fit, the first of which does.
local function how_many_fit(count, cost_of_one)
  for i = 1, limit_count do
    if count > 1 then
      local left = lefts[i](limits[i], periods[i], ats[i], as[i], bs[i], cs[i]) - reserves[i]
      count = math.min(count, div(left, cost_of_one))
    end
  end
  return count
end

-- Puts the rolled states in place of those before, with `charged` added.
local function charge(number, first, charged)
  local last_end = 0
  for i = 1, limit_count do
    local state, ends =
      makes[i](codes[i], charged, grains[i], periods[i], rates[i], ats[i], as[i], bs[i], cs[i], kept_stamps[i])
    states[first + i], raws[first + i] = state, state
    if ends > last_end then
      last_end = ends
    end
  end
  expirations[number] = expiry(last_end)
  is_changed[number] = true
end

-- Keeps what a denied hit leaves behind: repairs and counted denials, and all else as it was.
local function keep_denied(number, first, cost_of_one)
  local last_end = 0
  for i = 1, limit_count do
    if counted[i] then
      as[i], bs[i], cs[i], kept_stamps[i] = counts[i](
        kept_stamps[i], ats[i], as[i], bs[i], cs[i], cost_of_one, reserves[i], limits[i], periods[i], rates[i])
    end
    local state, ends =
      makes[i](codes[i], 0, grains[i], periods[i], rates[i], ats[i], as[i], bs[i], cs[i], kept_stamps[i])
    if repairs[i] or counted[i] then
      states[first + i], raws[first + i] = state, state
    end
    if ends > last_end then
      last_end = ends
    end
  end
  expirations[number] = expiry(last_end)
  is_changed[number] = true
end

local function answer_run(number, count, writes, cost_of_one)
  local first = limit_count * number
  if not expirations[number] then
    read(number, first)
  end
  local all_fit, is_written = roll_all(first, cost_of_one)
  if not writes then
    return struct.pack('<BI7', all_fit and count or 0, expirations[number]) .. words()
  end
  if not all_fit then
    if is_written then
      keep_denied(number, first, cost_of_one)
    end
    return struct.pack('<BI7', 0, expirations[number]) .. words()
  end
  local before = words()
  local fitting = how_many_fit(count, cost_of_one)
  charge(number, first, fitting * cost_of_one)
  local answer = struct.pack('<BI7', fitting, expirations[number]) .. before
  if fitting < count then
    roll_all(first, cost_of_one)
    answer = answer .. words()
  end
  return answer
end

local answers, numbers = {}, {}
local next_run = 1
while next_run <= #ARGV[2] do
  local number, count, run_flags, cost_of_one, run_deadline
  number, count, run_flags, cost_of_one, run_deadline, next_run =
    struct.unpack('<BBBI7I7', ARGV[2], next_run)
  local place = #answers + 1
  numbers[place] = number
  if run_deadline > 0 and now > run_deadline then
    answers[place] = TOO_LATE
  else
    local is_answered, answer = pcall(answer_run, number, count, run_flags == 0, cost_of_one)
    answers[place] = is_answered and answer or ALONE
  end
end

local is_refused = {}
for number = 0, #KEYS - 1 do
  if is_changed[number] then
    local first = limit_count * number
    local value = framed(raws[first + 1])
    for i = 2, limit_count do
      value = value .. framed(raws[first + i])
    end
    is_refused[number] = not pcall(store, KEYS[number + 1], value, expirations[number])
  end
end
for place, number in ipairs(numbers) do
  if is_refused[number] then
    answers[place] = ALONE
  end
end

return struct.pack('<I7', now) .. table.concat(answers)
