-- Token bucket and leaky bucket, unrolled into check_unrolled.lua. The same step as token_bucket.lua.
--
-- @arguments  shape_N, refunded_shape_N, grain_N, full_N, most_N, unit_N, refill_N, price_N
-- @stored     stored_shape_N, debt_N, stored_unit_N, at_N
-- @written    shape_N, owed_N, unit_N, now
-- @numbers    tick_N, debt_N, refunded_N
-- @after      tick_N, owed_N, refunded_N
--
-- shape        the eight bytes of the state in front of its numbers, which are only compared; another one for a state
--              that counts refunded tokens
-- full, most   the debt of an empty bucket, and the debt with which the hit still fits
-- unit, price  the debt that a token and the hit cost

-- @section prepare
local tick_N = (now - now % grain_N) / grain_N

-- @section empty
stored_shape_N, debt_N, stored_unit_N, at_N, refunded_N = shape_N, 0, unit_N, now, 0

-- @section long
if #value < place + 31 then
  break
end
stored_shape_N, debt_N, stored_unit_N, at_N, place = unpack('<dddd', value, place)
if stored_shape_N == refunded_shape_N and #value >= place + 7 then
  stored_shape_N = shape_N
  refunded_N, place = unpack('<d', value, place)
end

-- @section advance
if not (stored_shape_N == shape_N and stored_unit_N == unit_N and at_N <= now and debt_N <= full_N) then
  break
end
debt_N = debt_N - (tick_N - (at_N - at_N % grain_N) / grain_N) * refill_N
if debt_N < 0 then
  debt_N = 0
end
if debt_N + price_N > most_N then
  fits = false
end

-- @section fit
if debt_N + fitting * price_N > most_N then
  fitting = (most_N - debt_N - (most_N - debt_N) % price_N) / price_N
end

-- @section charge
local owed_N = debt_N + fitting * price_N
keeps_ttl = keeps_ttl and at_N >= second
local end_N = (tick_N + (owed_N - owed_N % refill_N) / refill_N + (owed_N % refill_N > 0 and 1 or 0)) * grain_N
if end_N > ends then
  ends = end_N
end
if refunded_N > 0 then
  -- Earlier receipts need the count of refunds until the value would have expired without them.
  is_long = true
  if expires > keep_until then
    keep_until = expires
  end
end

-- @section state
local state_N = refunded_N > 0 and pack('<ddddd', refunded_shape_N, owed_N, unit_N, now, refunded_N)
  or pack('<dddd', shape_N, owed_N, unit_N, now)
