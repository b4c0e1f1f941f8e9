-- Token bucket: refills steadily, lets bursts through until it is empty.
-- The same step as crates/ratelimit-core/src/algorithm/token_bucket.rs and bucket.rs. A leaky bucket admits the same
-- hits and uses the same step; its states have their own code, and Rust derives the delay from the debt before the hit.
--
-- state   code; grain (microseconds); debt; unit, the debt that a token costs; at (microseconds); then, where
--         there were refunds or changes of the unit, the tokens refunded since the value was made, and
--         2^32 for each change
-- args    limit, the capacity; period, the debt that a token costs; rate, the debt forgiven each tick
-- reply   at; debt at the present, before the hit; the tokens refunded
--
-- 2^32 is larger than the tokens that can be refunded while a receipt is kept, so a receipt from before a change of
-- the unit is recognised by the difference. The count wraps around at 2^52.
--
-- @format   ddd
-- @stored   debt_N, unit_N, since_N
-- @usual    unit_N == period_N and since_N <= now and debt_N <= full_N
-- @written  spent_N, period_N, at_N * grain_N
-- @more     refunded_N
-- @numbers  debt_N, refunded_N
-- @after    spent_N, refunded_N

-- @section empty
debt_N, unit_N, since_N, refunded_N = 0, period_N, now, 0

-- @section read
if to_N - from_N == 35 then
  refunded_N = unpack('<d', value, from_N + 28)
elseif to_N - from_N ~= 27 then
  error('corrupt rate limit state')
end
debt_N, unit_N, since_N = unpack('<ddd', value, from_N + 4)
local stored_grain_N = (stored_head - stored_head % 256) / 256
if unit_N ~= period_N then
  local is_exact_N = debt_N * period_N < 9007199254740992
  debt_N = is_exact_N and debt_N * period_N or debt_N
  debt_N = (debt_N - debt_N % unit_N) / unit_N + (debt_N % unit_N > 0 and 1 or 0)
  debt_N = is_exact_N and debt_N or (debt_N < limit_N and debt_N or limit_N) * period_N
end
if unit_N ~= period_N or stored_grain_N ~= grain_N then
  refunded_N = (refunded_N + 4294967296) % 4503599627370496
end
if debt_N > full_N then
  debt_N = full_N
end
since_N = since_N - since_N % stored_grain_N
since_N = (since_N - since_N % grain_N) / grain_N
if since_N > tick_N + period_N then
  since_N, repaired = tick_N, true
elseif since_N > tick_N then
  at_N = since_N
end
since_N = since_N * grain_N

-- @section demand
local full_N, wanted_debt_N = limit_N * period_N, wanted_N * period_N

-- @section advance
debt_N = debt_N - (at_N - (since_N - since_N % grain_N) / grain_N) * rate_N
if debt_N < 0 then
  debt_N = 0
end
if debt_N + wanted_debt_N > full_N then
  fits = false
end

-- @section fit
if debt_N + fitting * cost * period_N > (limit_N - reserve_N) * period_N then
  local left_N = (limit_N - reserve_N) * period_N - debt_N
  fitting = (left_N - left_N % (cost * period_N)) / (cost * period_N)
end

-- @section ttl
keeps_ttl = keeps_ttl and since_N >= second

-- @section charge
local spent_N = debt_N + fitting * cost * period_N
if spent_N > 0 then
  local refilled_N = (at_N + (spent_N - spent_N % rate_N) / rate_N + (spent_N % rate_N > 0 and 1 or 0)) * grain_N
  if refilled_N > ends then
    ends = refilled_N
  end
end
if refunded_N > 0 then
  -- Earlier receipts need the count of refunds until the value would have expired without them.
  keeps_expiry = true
end

-- @section settle
local function token_bucket_left(capacity, period, _, debt)
  return div(capacity * period - debt, period)
end

-- The debt and the tokens refunded after a credit, or nil when there is no debt.
local function token_bucket_credit(units, period, debt, refunded)
  local credit = math.min(units * period, debt)
  if credit > 0 then
    return debt - credit, (refunded + div_up(credit, period)) % 4503599627370496
  end
end

-- Lowers the debt by the part of the charge that time has not forgiven yet. Time forgives the oldest debt first, and a
-- refund since the charge may have removed older debt, which time did not have to forgive. `mark` is the debt with the
-- charge, `refunded_before` the tokens refunded by then. Nothing is refunded when the mark is of another unit,
-- when the unit has changed since, or when an instance of an earlier version has dropped the count of refunds.
local function token_bucket_refund(
  stored, units, charged_cost, mark, refunded_before, charge_tick, now_tick, grain, period, refill)
  local code, stored_grain, debt, unit, at = unpack('<BI3ddd', stored)
  local refunded = #stored == 36 and unpack('<d', stored, 29) or 0
  -- A state ahead of the clock has forgiven up to its own time.
  local elapsed = math.max(now_tick, div(at, stored_grain)) - charge_tick
  if unit ~= period or stored_grain ~= grain or elapsed < 0 then
    return nil
  end
  local older = mark - charged_cost * period
  local refunded_since = refunded - refunded_before
  if older < 0 or refunded_since < 0 or refunded_since >= 4294967296 then
    return nil
  end
  local older_refunded = math.min(refunded_since * period, older)
  local left_of_charge = mark - elapsed * refill - older_refunded
  local credit = math.min(units * period, left_of_charge, debt)
  if credit <= 0 then
    return nil
  end
  refunded = (refunded + div_up(credit, period)) % 4503599627370496
  local state = pack('<BI3ddd', code, grain, debt - credit, unit, at)
  return framed(refunded > 0 and state .. pack('<d', refunded) or state)
end
