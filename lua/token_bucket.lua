-- Token bucket: refills steadily, lets bursts through until it is empty.
-- The same step as crates/ratelimit-core/src/algorithm/token_bucket.rs and bucket.rs.
--
-- state   code; grain (microseconds); debt; unit, the debt that a token costs; at (microseconds)
-- args    capacity; period, the debt that a token costs; refill, the debt forgiven each tick
-- answer  at; debt at the present, before the hit

local function token_bucket_roll(value, from, _, now_tick, wanted, grain, capacity, period, refill)
  local full = capacity * period
  local debt, at, repaired = 0, now_tick, false
  if from then
    local stored_grain, unit, stored_at
    _, stored_grain, debt, unit, stored_at = struct.unpack('<BI3ddd', value, from)
    if unit ~= period then
      if debt * period < 9007199254740992 then
        debt = div_up(debt * period, unit)
      else
        debt = math.min(div_up(debt, unit), capacity) * period
      end
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
  return debt + wanted * period <= full, repaired, at, debt
end

local function token_bucket_state(code, charged, grain, period, refill, at, debt)
  debt = debt + charged * period
  local ends = 0
  if debt > 0 then
    ends = (at + div_up(debt, refill)) * grain
  end
  return struct.pack('<BI3ddd', code, grain, debt, period, at * grain), ends
end

local function token_bucket_left(capacity, period, _, debt)
  return div(capacity * period - debt, period)
end

-- Lowers the debt by what is left of the charge: time forgives the oldest debt first.
local function token_bucket_refund(stored, units, mark, charge_tick, now_tick, grain, _, period, refill)
  local code, stored_grain, debt, unit, at = struct.unpack('<BI3ddd', stored)
  -- A state ahead of the clock has forgiven up to its own time.
  local elapsed = math.max(now_tick, div(at, stored_grain)) - charge_tick
  if unit ~= period or stored_grain ~= grain or elapsed < 0 then
    return nil
  end
  local still_owed = mark - elapsed * refill
  local credit = math.min(units * period, still_owed, debt)
  if credit <= 0 then
    return nil
  end
  return struct.pack('<BI3ddd', code, grain, debt - credit, unit, at)
end
