-- Fixed window, unrolled into check_unrolled.lua. The same step as fixed_window.lua.
--
-- @arguments  shape_N, grain_N, limit_N, most_N, period_N
-- @stored     stored_shape_N, count_N, at_N
-- @written    shape_N, spent_N, tick_N
-- @numbers    tick_N, count_N
-- @after      tick_N, spent_N
--
-- shape  the eight bytes of the state in front of its numbers, which are only compared
-- most   the units with which the hit still fits: the limit without the reserve

-- @section prepare
local tick_N = (now - now % grain_N) / grain_N
local window_N = tick_N - tick_N % period_N

-- @section empty
stored_shape_N, count_N, at_N = shape_N, 0, tick_N

-- @section long
if #value < place + 23 then
  break
end
stored_shape_N, count_N, at_N, place = unpack('<ddd', value, place)

-- @section advance
if not (stored_shape_N == shape_N and at_N <= tick_N and count_N <= limit_N) then
  break
end
if at_N < window_N then
  count_N = 0
end
if count_N + cost > most_N then
  fits = false
end

-- @section fit
if count_N + fitting * cost > most_N then
  fitting = (most_N - count_N - (most_N - count_N) % cost) / cost
end

-- @section charge
local spent_N = count_N + fitting * cost
keeps_ttl = keeps_ttl and at_N * grain_N >= second
if (window_N + period_N) * grain_N > ends then
  ends = (window_N + period_N) * grain_N
end

-- @section state
local state_N = pack('<ddd', shape_N, spent_N, tick_N)
