-- Sliding window counter, unrolled into check_unrolled.lua. The same step as sliding_window_counter.lua.
--
-- @arguments  shape_N, grain_N, limit_N, most_N, period_N
-- @stored     stored_shape_N, prev_N, cur_N, at_N, stored_period_N
-- @written    shape_N, prev_N, spent_N, tick_N, period_N
-- @numbers    tick_N, prev_N, cur_N
-- @after      tick_N, prev_N, spent_N
--
-- shape  the eight bytes of the state in front of its numbers, which are only compared
-- most   the units with which the hit still fits: the limit without the reserve

-- @section prepare
local tick_N = (now - now % grain_N) / grain_N
local left_N = period_N - tick_N % period_N
local window_N = tick_N + left_N - period_N

-- @section empty
stored_shape_N, prev_N, cur_N, at_N, stored_period_N = shape_N, 0, 0, tick_N, period_N

-- @section long
if #value < place + 39 then
  break
end
stored_shape_N, prev_N, cur_N, at_N, stored_period_N, place = unpack('<ddddd', value, place)

-- @section advance
if
  not (
    stored_shape_N == shape_N and stored_period_N == period_N and at_N <= tick_N
    and prev_N <= limit_N and cur_N <= limit_N
  )
then
  break
end
if at_N < window_N then
  prev_N, cur_N = at_N >= window_N - period_N and cur_N or 0, 0
end
if prev_N * left_N > (most_N - cur_N - cost) * period_N then
  fits = false
end

-- @section fit
local carried_N = prev_N * left_N
local used_N = cur_N + (carried_N - carried_N % period_N) / period_N + (carried_N % period_N > 0 and 1 or 0)
if used_N + fitting * cost > most_N then
  fitting = (most_N - used_N - (most_N - used_N) % cost) / cost
end

-- @section charge
local spent_N = cur_N + fitting * cost
keeps_ttl = keeps_ttl and at_N * grain_N >= second
if (window_N + 2 * period_N) * grain_N > ends then
  ends = (window_N + 2 * period_N) * grain_N
end

-- @section state
local state_N = pack('<ddddd', shape_N, prev_N, spent_N, tick_N, period_N)
