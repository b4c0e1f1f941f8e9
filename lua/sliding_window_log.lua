-- Sliding window log: at most `limit` units in any window, with a timestamp for each unit.
-- The same step as crates/ratelimit-core/src/algorithm/sliding_window_log.rs.
--
-- state   code; grain (microseconds); the tick of each unit spent, oldest first
-- args    limit; period (ticks)
-- reply   at; how many stamps are live; the oldest of them; the one that must expire before the hit fits
--
-- Redis hashes every string that a script makes, byte by byte. So the stamps are read where they are in the value, and
-- cut out only to be kept.
--
-- @state    pack('<I4I4', 4 + #stamps_N + #added_N, head_N) .. stamps_N .. added_N
-- @numbers  live_N, oldest_N, pivot_N
-- @kept     stamps_N
-- @after    live_N, oldest_N, pivot_N

-- @section empty
log_N, first_N, last_N, newest_N = '', 1, 0, 0

-- @section read
if (to_N - from_N) % 7 ~= 3 then
  error('corrupt rate limit state')
end
log_N, first_N, last_N = value, from_N + 4, to_N
if stored_head ~= 256 * grain_N + stored_head % 256 then
  local stamps_of_grain_N = {}
  for place = first_N, last_N, 7 do
    local tick = unpack('<I7', value, place) * (stored_head - stored_head % 256) / 256
    stamps_of_grain_N[#stamps_of_grain_N + 1] = pack('<I7', (tick - tick % grain_N) / grain_N)
  end
  log_N = table.concat(stamps_of_grain_N)
  first_N, last_N = 1, #log_N
end
newest_N = first_N < last_N and unpack('<I7', log_N, last_N - 6) or 0
if newest_N > tick_N + period_N then
  local count_N = 0
  for place = first_N, last_N, 7 do
    count_N = count_N + (unpack('<I7', log_N, place) + period_N > newest_N and 1 or 0)
  end
  log_N, repaired = pack('<I7', tick_N):rep(count_N), true
  first_N, last_N = 1, #log_N
elseif newest_N > tick_N then
  at_N = newest_N
end

-- @section advance
if first_N < last_N and unpack('<I7', log_N, first_N) + period_N <= at_N then
  -- The first stamp that is live is between `low` and `high`. It is searched from the front, where it usually is.
  local low, high, stamps = 2, 2, (last_N - first_N + 1) / 7
  while high <= stamps and unpack('<I7', log_N, first_N + 7 * high - 7) + period_N <= at_N do
    low, high = high + 1, 2 * high
  end
  if high > stamps then
    high = stamps + 1
  end
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if unpack('<I7', log_N, first_N + 7 * middle - 7) + period_N <= at_N then
      low = middle + 1
    else
      high = middle
    end
  end
  first_N = first_N + 7 * low - 7
end
local live_N, oldest_N, pivot_N = (last_N - first_N + 1) / 7, at_N, at_N
if live_N > 0 then
  oldest_N = unpack('<I7', log_N, first_N)
end
if live_N + wanted_N > limit_N then
  fits = false
  if wanted_N <= limit_N then
    pivot_N = unpack('<I7', log_N, first_N + 7 * (live_N + wanted_N - limit_N) - 7)
  end
end

-- @section fit
if live_N + fitting * cost > limit_N - reserve_N then
  fitting = (limit_N - reserve_N - live_N - (limit_N - reserve_N - live_N) % cost) / cost
end

-- @section ttl
keeps_ttl = keeps_ttl and newest_N * grain_N >= second

-- @section keep
local stamps_N = live_N > 0 and log_N:sub(first_N, last_N) or ''

-- @section charge
local added_N = pack('<I7', at_N):rep(fitting * cost)
do
  local last_tick = fitting * cost > 0 and at_N or #stamps_N > 0 and unpack('<I7', stamps_N, #stamps_N - 6)
  if last_tick and (last_tick + period_N) * grain_N > ends then
    ends = (last_tick + period_N) * grain_N
  end
end

-- @section after
local pivot_at_N = live_N + fitting * cost + wanted_N - limit_N
if pivot_at_N > 0 and pivot_at_N <= live_N and wanted_N <= limit_N then
  pivot_N = unpack('<I7', stamps_N, 7 * pivot_at_N - 6)
end
live_N = live_N + fitting * cost

-- @section functions
-- Records a denied hit: the newest `limit` stamps stay.
local function sliding_window_log_count(stamps, at, _, _, _, spent, reserve, limit)
  stamps = (stamps .. pack('<I7', at):rep(spent)):sub(-7 * limit)
  local live, oldest, pivot = #stamps / 7, at, at
  local over = live + spent + reserve - limit
  if live > 0 then
    oldest = unpack('<I7', stamps)
  end
  if over > 0 and over <= live then
    pivot = unpack('<I7', stamps, 7 * over - 6)
  end
  return live, oldest, pivot, stamps
end

-- @section settle
local function sliding_window_log_left(limit, _, _, live)
  return limit - live
end

-- Removes up to `units` stamps of the charge.
local function sliding_window_log_refund(stored, units, _, _, _, charge_tick, _, grain)
  local code, stored_grain = unpack('<BI3', stored)
  local kept, given = {}, 0
  for place = 5, #stored, 7 do
    local tick = in_grain(unpack('<I7', stored, place), stored_grain, grain)
    if given < units and tick == charge_tick then
      given = given + 1
    else
      kept[#kept + 1] = stored:sub(place, place + 6)
    end
  end
  if given == 0 then
    return nil
  end
  return framed(pack('<BI3', code, stored_grain) .. table.concat(kept))
end

-- Removes the oldest stamps.
local function sliding_window_log_credit(units, _, live, oldest, stamps)
  if units > 0 and live > 0 then
    return live - math.min(units, live), oldest, stamps:sub(7 * math.min(units, live) + 1)
  end
end
