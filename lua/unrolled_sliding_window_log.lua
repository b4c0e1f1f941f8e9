-- Sliding window log, unrolled into check_unrolled.lua. The same step as sliding_window_log.lua.
--
-- @arguments  shape_N, grain_N, most_N, period_N
-- @numbers    tick_N, live_N, oldest_N, pivot_N
-- @after      tick_N, live_N, oldest_N, pivot_N
--
-- shape  the code and the grain of the state, as a number of four bytes
-- most   the units with which the hit still fits: the limit without the reserve

-- @section prepare
local tick_N = (now - now % grain_N) / grain_N

-- @section empty
stored_shape_N, stamps_N = shape_N, ''

-- @section long
local length_N
if #value < place + 7 then
  break
end
length_N, stored_shape_N, place = unpack('<I4I4', value, place)
if length_N % 7 ~= 4 or #value < place + length_N - 5 then
  break
end
stamps_N = value:sub(place, place + length_N - 5)
place = place + length_N - 4

-- @section advance
if stored_shape_N ~= shape_N or (stamps_N ~= '' and unpack('<I7', stamps_N, #stamps_N - 6) > tick_N) then
  break
end
if stamps_N ~= '' and unpack('<I7', stamps_N) + period_N <= tick_N then
  -- The first stamp that is live is between `first` and `last`. It is searched from the front, where it usually is.
  local first, last, stamps = 2, 2, #stamps_N / 7
  while last <= stamps and unpack('<I7', stamps_N, 7 * last - 6) + period_N <= tick_N do
    first, last = last + 1, 2 * last
  end
  if last > stamps then
    last = stamps + 1
  end
  while first < last do
    local middle = (first + last - (first + last) % 2) / 2
    if unpack('<I7', stamps_N, 7 * middle - 6) + period_N <= tick_N then
      first = middle + 1
    else
      last = middle
    end
  end
  stamps_N = stamps_N:sub(7 * first - 6)
end
local live_N, oldest_N, pivot_N = #stamps_N / 7, tick_N, tick_N
if live_N > 0 then
  oldest_N = unpack('<I7', stamps_N)
end
if live_N + cost > most_N then
  fits = false
  if cost <= most_N then
    pivot_N = unpack('<I7', stamps_N, 7 * (live_N + cost - most_N) - 6)
  end
end

-- @section fit
if live_N + fitting * cost > most_N then
  fitting = (most_N - live_N - (most_N - live_N) % cost) / cost
end

-- @section charge
local charged_N = stamps_N .. pack('<I7', tick_N):rep(fitting * cost)
if (tick_N + period_N) * grain_N > ends then
  ends = (tick_N + period_N) * grain_N
end

-- @section state
local state_N = pack('<I4I4', 4 + #charged_N, shape_N) .. charged_N

-- @section after
live_N = #charged_N / 7
oldest_N, pivot_N = unpack('<I7', charged_N), tick_N
if live_N + cost > most_N and cost <= most_N then
  pivot_N = unpack('<I7', charged_N, 7 * (live_N + cost - most_N) - 6)
end
