-- Penalty box: blocks a client for a while that is denied too often.
-- The same step as crates/ratelimit-core/src/algorithm/penalty_box.rs.
--
-- state   code; grain (microseconds); count; first, the tick of the first counted denial; until (tick);
--         level, the number of blocks so far
-- args    limit, the denials that start a block; period (ticks); rate, twice the ticks of the first block, plus
--         one if blocks double
-- reply   at; 64 * count + level; first; until

-- @section functions
local penalty_box_longest = 366 * 86400 * 1000
local penalty_box_highest = 40

local function penalty_box_refusal(rate, level)
  local refusal = div(rate, 2)
  if rate % 2 == 0 then
    return refusal
  end
  local doublings = math.min(math.max(level, 1), penalty_box_highest) - 1
  return math.min(refusal * 2 ^ doublings, penalty_box_longest)
end

local function penalty_box_roll(value, from, _, at, _, _, _, period, rate)
  local count, first, untl, level, repaired = 0, at, 0, 0, false
  if from then
    _, _, count, first, untl, level = unpack('<BI3dddB', value, from)
    local latest = at + penalty_box_refusal(rate, level)
    if first > at + period then
      first, repaired = at, true
    end
    if untl > latest then
      untl, repaired = latest, true
    end
    if first + period <= at then
      count, first = 0, at
    end
    if at >= untl and untl + period <= at then
      level, untl = 0, 0
    end
  end
  return at >= untl, repaired, at, 64 * count + level, first, untl
end

local function penalty_box_state(code, _, grain, period, _, _, count_and_level, first, untl)
  local level = count_and_level % 64
  local count = (count_and_level - level) / 64
  local ends = 0
  if count > 0 then
    ends = (first + period) * grain
  end
  if level > 0 then
    ends = math.max(ends, (untl + period) * grain)
  end
  return framed(pack('<BI3dddB', code, grain, count, first, untl, level)), ends
end

-- Records a denied hit, and starts a block with the one that reaches the limit.
local function penalty_box_count(_, at, count_and_level, first, untl, _, _, limit, _, rate)
  local level = count_and_level % 64
  local count = (count_and_level - level) / 64
  if count == 0 then
    first = at
  end
  count = count + 1
  if count >= limit then
    level = math.min(level + 1, penalty_box_highest)
    untl = at + penalty_box_refusal(rate, level)
    count = 0
  end
  return 64 * count + level, first, untl
end
