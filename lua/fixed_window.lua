-- Fixed window: so many in each window of the clock.
-- The same step as crates/ratelimit-core/src/algorithm/fixed_window.rs.
--
-- state   code; grain (microseconds); count; at, the tick of the last charge
-- args    limit; period (ticks)
-- answer  at; count of the present window, before the hit

local function fixed_window_roll(stored, now_tick, spent, grain, limit, period)
  local count, at, repaired = 0, now_tick, false
  if stored then
    local _, stored_grain, stored_at
    _, stored_grain, count, stored_at = struct.unpack('<BI3I7I7', stored)
    stored_at = in_grain(stored_at, stored_grain, grain)
    at, repaired = catch_up(stored_at, now_tick, period)
    local same_window = div(stored_at, period) == div(at, period)
    if not (repaired or same_window) then
      count = 0
    end
    if count > limit then
      count = limit
    end
  end
  return count + spent <= limit, repaired, at, count, 0, 0
end

local function fixed_window_state(code, charged, grain, period, _, at, count)
  count = count + charged
  local ends = 0
  if count > 0 then
    ends = (at - at % period + period) * grain
  end
  return struct.pack('<BI3I7I7', code, grain, count, at), ends
end

local function fixed_window_left(limit, _, _, count)
  return limit - count
end

local function fixed_window_refund(stored, units, _, charge_tick, _, grain, _, period)
  local code, stored_grain, count, at = struct.unpack('<BI3I7I7', stored)
  local stored_at = in_grain(at, stored_grain, grain)
  local credit = math.min(units, count)
  if div(stored_at, period) ~= div(charge_tick, period) or credit == 0 then
    return nil
  end
  return struct.pack('<BI3I7I7', code, stored_grain, count - credit, at)
end
