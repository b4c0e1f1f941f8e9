-- Sliding window log: at most `limit` units in any window, with a timestamp for each unit.
-- The same step as crates/ratelimit-core/src/algorithm/sliding_window_log.rs.
--
-- state   code; grain (microseconds); the tick of each unit spent, oldest first
-- args    limit; period (ticks)
-- reply   at; how many stamps are live; the oldest of them; the one that must expire before the hit fits

local function sliding_window_log_stamp(stamps, number)
  return (struct.unpack('<I7', stamps, 7 * number - 6))
end

-- How many stamps there are, the oldest, and the one that must expire before the hit fits.
local function sliding_window_log_seen(stamps, at, spent, limit)
  local live = #stamps / 7
  local over = live + spent - limit
  local oldest, pivot = at, at
  if live > 0 then
    oldest = sliding_window_log_stamp(stamps, 1)
  end
  if over > 0 and over <= live then
    pivot = sliding_window_log_stamp(stamps, over)
  end
  return live, oldest, pivot
end

-- All stamps, converted to the grain of the limit.
local function sliding_window_log_read(value, from, to, grain)
  local _, stored_grain, first = struct.unpack('<BI3', value, from)
  local stamps = value:sub(first, to)
  if #stamps % 7 ~= 0 then
    error('corrupt rate limit state')
  end
  if stored_grain == grain then
    return stamps
  end
  local converted = {}
  for number = 1, #stamps / 7 do
    local tick = in_grain(sliding_window_log_stamp(stamps, number), stored_grain, grain)
    converted[number] = struct.pack('<I7', tick)
  end
  return table.concat(converted)
end

local function sliding_window_log_roll(value, from, to, now_tick, wanted, grain, limit, period)
  local stamps = from and sliding_window_log_read(value, from, to, grain) or ''
  local count = #stamps / 7
  local at, repaired = now_tick, false
  if count > 0 then
    local newest = sliding_window_log_stamp(stamps, count)
    at, repaired = catch_up(newest, now_tick, period)
    local window_end = repaired and newest or at
    local first, last = 1, count + 1
    while first < last do
      local middle = div(first + last, 2)
      if sliding_window_log_stamp(stamps, middle) + period <= window_end then
        first = middle + 1
      else
        last = middle
      end
    end
    stamps = stamps:sub(7 * first - 6)
    if repaired then
      stamps = struct.pack('<I7', at):rep(#stamps / 7)
    end
  end
  local live, oldest, pivot = sliding_window_log_seen(stamps, at, wanted, limit)
  return live + wanted <= limit, repaired, at, live, oldest, pivot, stamps
end

local function sliding_window_log_state(code, charged, grain, period, _, at, _, _, _, stamps)
  if charged > 0 then
    stamps = stamps .. struct.pack('<I7', at):rep(charged)
  end
  local ends = 0
  if #stamps > 0 then
    ends = (sliding_window_log_stamp(stamps, #stamps / 7) + period) * grain
  end
  return struct.pack('<BI3', code, grain) .. stamps, ends
end

-- Records a denied hit: the newest `limit` stamps stay.
local function sliding_window_log_count(stamps, at, _, _, _, spent, reserve, limit)
  stamps = (stamps .. struct.pack('<I7', at):rep(spent)):sub(-7 * limit)
  local live, oldest, pivot = sliding_window_log_seen(stamps, at, spent + reserve, limit)
  return live, oldest, pivot, stamps
end

local function sliding_window_log_left(limit, _, _, live)
  return limit - live
end

-- Removes up to `units` stamps of the charge.
local function sliding_window_log_refund(stored, units, _, _, _, charge_tick, _, grain)
  local stamps = sliding_window_log_read(stored, 1, #stored, grain)
  local code, stored_grain = struct.unpack('<BI3', stored)
  local kept, given = {}, 0
  for number = 1, #stamps / 7 do
    if given < units and sliding_window_log_stamp(stamps, number) == charge_tick then
      given = given + 1
    else
      kept[#kept + 1] = stored:sub(7 * number - 2, 7 * number + 4)
    end
  end
  if given == 0 then
    return nil
  end
  return struct.pack('<BI3', code, stored_grain) .. table.concat(kept)
end

-- Removes the oldest stamps.
local function sliding_window_log_credit(units, _, live, oldest, stamps)
  if units > 0 and live > 0 then
    return live - math.min(units, live), oldest, stamps:sub(7 * math.min(units, live) + 1)
  end
end
