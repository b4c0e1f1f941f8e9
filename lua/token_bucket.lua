-- Token bucket: refills steadily, lets bursts through until it is empty.
-- The same step as crates/ratelimit-core/src/algorithm/token_bucket.rs and bucket.rs.
--
-- state   code; grain (microseconds); debt; unit, the debt that a token costs; at (microseconds); then, where
--         there were refunds or changes of the unit, the tokens refunded since the value was made, and
--         UNIT_CHANGE for each change
-- args    capacity; period, the debt that a token costs; refill, the debt forgiven each tick
-- reply   at; debt at the present, before the hit; the tokens refunded

-- UNIT_CHANGE is larger than the tokens that can be refunded while a receipt is kept, so a receipt from before a
-- change of the unit is recognised by the difference. The count wraps around at REFUND_COUNT_END.
local UNIT_CHANGE, REFUND_COUNT_END = 4294967296, 4503599627370496

-- The tokens refunded, behind the 28 bytes of a state that begins at `from`.
local function token_bucket_refunded(value, from, to)
  local length = to - from + 1
  if length == 28 then
    return 0
  elseif length == 36 then
    return (struct.unpack('<d', value, from + 28))
  end
  error('corrupt rate limit state')
end

local function token_bucket_roll(value, from, to, now_tick, wanted, grain, capacity, period, refill)
  local full = capacity * period
  local debt, at, repaired, refunded = 0, now_tick, false, 0
  if from then
    local _, stored_grain, unit, stored_at
    _, stored_grain, debt, unit, stored_at = struct.unpack('<BI3ddd', value, from)
    refunded = token_bucket_refunded(value, from, to)
    if unit ~= period then
      if debt * period < 9007199254740992 then
        debt = div_up(debt * period, unit)
      else
        debt = math.min(div_up(debt, unit), capacity) * period
      end
    end
    if unit ~= period or stored_grain ~= grain then
      refunded = (refunded + UNIT_CHANGE) % REFUND_COUNT_END
    end
    if debt > full then
      debt = full
    end
    stored_at = in_grain(div(stored_at, stored_grain), stored_grain, grain)
    at, repaired = catch_up(stored_at, now_tick, period)
    if at > stored_at then
      debt = debt - (at - stored_at) * refill
      if debt < 0 then
        debt = 0
      end
    end
  end
  return debt + wanted * period <= full, repaired, at, debt, refunded
end

local function token_bucket_state(code, charged, grain, period, refill, at, debt, refunded)
  debt = debt + charged * period
  local ends = 0
  if debt > 0 then
    ends = (at + div_up(debt, refill)) * grain
  end
  local state = struct.pack('<BI3ddd', code, grain, debt, period, at * grain)
  if refunded > 0 then
    -- Earlier receipts need the count of refunds until the value would have expired without them.
    return state .. struct.pack('<d', refunded), ends, true
  end
  return state, ends
end

local function token_bucket_left(capacity, period, _, debt)
  return div(capacity * period - debt, period)
end

-- The debt and the tokens refunded after a credit, or nil when nothing is owed.
local function token_bucket_credit(units, period, debt, refunded)
  local credit = math.min(units * period, debt)
  if credit > 0 then
    return debt - credit, (refunded + div_up(credit, period)) % REFUND_COUNT_END
  end
end

-- Lowers the debt by the part of the charge that is still owed. Time forgives the oldest debt first, and a refund since
-- the charge may have removed older debt, which time did not have to forgive. `mark` is the debt with the
-- charge, `refunded_before` the tokens refunded by then. Nothing is refunded when the mark is of another unit,
-- when the unit has changed since, or when an instance of an earlier version has dropped the count of refunds.
local function token_bucket_refund(
  stored, units, charged_cost, mark, refunded_before, charge_tick, now_tick, grain, period, refill)
  local code, stored_grain, debt, unit, at = struct.unpack('<BI3ddd', stored)
  local refunded = token_bucket_refunded(stored, 1, #stored)
  -- A state ahead of the clock has forgiven up to its own time.
  local elapsed = math.max(now_tick, div(at, stored_grain)) - charge_tick
  if unit ~= period or stored_grain ~= grain or elapsed < 0 then
    return nil
  end
  local older = mark - charged_cost * period
  local refunded_since = refunded - refunded_before
  if older < 0 or refunded_since < 0 or refunded_since >= UNIT_CHANGE then
    return nil
  end
  local older_refunded = math.min(refunded_since * period, older)
  local still_owed = mark - elapsed * refill - older_refunded
  local credit = math.min(units * period, still_owed, debt)
  if credit <= 0 then
    return nil
  end
  refunded = (refunded + div_up(credit, period)) % REFUND_COUNT_END
  local state = struct.pack('<BI3ddd', code, grain, debt - credit, unit, at)
  return refunded > 0 and state .. struct.pack('<d', refunded) or state
end
