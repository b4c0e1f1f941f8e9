-- Sliding window log, unrolled into check_unrolled.lua. The same step as sliding_window_log.lua.
--
-- @arguments  shape_N, grain_N, most_N, period_N
-- @numbers    tick_N, live_N, oldest_N, pivot_N
-- @after      tick_N, live_N, oldest_N, pivot_N
-- @state      pack('<I4I4', 4 + #stamps_N + #added_N, shape_N) .. stamps_N .. added_N
--
-- shape  the code and the grain of the state, as a number of four bytes
-- most   the units with which the hit still fits: the limit without the reserve
--
-- Redis hashes every string that a script makes, byte by byte. So the stamps are read where they are in the value, and
-- cut out only to be written.

-- @section prepare
local tick_N = (now - now % grain_N) / grain_N

-- @section empty
stored_shape_N, from_N, to_N = shape_N, 1, 0

-- @section long
local length_N
if #value < place + 7 then
  break
end
length_N, stored_shape_N, place = unpack('<I4I4', value, place)
if length_N % 7 ~= 4 or #value < place + length_N - 5 then
  break
end
from_N, to_N = place, place + length_N - 5
place = to_N + 1

-- @section advance
local newest_N = from_N < to_N and unpack('<I7', value, to_N - 6) or 0
if stored_shape_N ~= shape_N or newest_N > tick_N then
  break
end
if from_N < to_N and unpack('<I7', value, from_N) + period_N <= tick_N then
  -- The first stamp that is live is between `first` and `last`. It is searched from the front, where it usually is.
  local first, last, stamps = 2, 2, (to_N - from_N + 1) / 7
  while last <= stamps and unpack('<I7', value, from_N + 7 * last - 7) + period_N <= tick_N do
    first, last = last + 1, 2 * last
  end
  if last > stamps then
    last = stamps + 1
  end
  while first < last do
    local middle = (first + last - (first + last) % 2) / 2
    if unpack('<I7', value, from_N + 7 * middle - 7) + period_N <= tick_N then
      first = middle + 1
    else
      last = middle
    end
  end
  from_N = from_N + 7 * first - 7
end
local live_N, oldest_N, pivot_N = (to_N - from_N + 1) / 7, tick_N, tick_N
if live_N > 0 then
  oldest_N = unpack('<I7', value, from_N)
end
if live_N + cost > most_N then
  fits = false
  if cost <= most_N then
    pivot_N = unpack('<I7', value, from_N + 7 * (live_N + cost - most_N) - 7)
  end
end

-- @section fit
if live_N + fitting * cost > most_N then
  fitting = (most_N - live_N - (most_N - live_N) % cost) / cost
end

-- @section charge
local stamps_N = live_N > 0 and value:sub(from_N, to_N) or ''
local added_N = pack('<I7', tick_N):rep(fitting * cost)
keeps_ttl = keeps_ttl and newest_N * grain_N >= second
if (tick_N + period_N) * grain_N > ends then
  ends = (tick_N + period_N) * grain_N
end

-- @section after
local pivot_at_N = live_N + fitting * cost + cost - most_N
if pivot_at_N > 0 and pivot_at_N <= live_N and cost <= most_N then
  pivot_N = unpack('<I7', stamps_N, 7 * pivot_at_N - 6)
end
live_N = live_N + fitting * cost
