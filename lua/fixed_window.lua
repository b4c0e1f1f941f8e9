-- Fixed window: at most `limit` units in each window of the clock.
-- The same step as crates/ratelimit-core/src/algorithm/fixed_window.rs.
--
-- state   code; grain (microseconds); count; at, the tick of the last charge
-- args    limit; period (ticks)
-- reply   at; count of the present window, before the hit

local function fixed_window_roll(value, from, _, now_tick, wanted, grain, limit, period)
  local count, at, repaired = 0, now_tick, false
  if from then
    local code_and_grain, stored_at
    code_and_grain, count, stored_at = struct.unpack('<I4dd', value, from)
    -- `in_grain` and `catch_up` are inlined: Redis pays for every function of a script in each call, and this
    -- script is called often.
    local stored_grain = (code_and_grain - code_and_grain % 256) / 256
    if stored_grain ~= grain then
      stored_at = stored_at * stored_grain
      stored_at = (stored_at - stored_at % grain) / grain
    end
    if stored_at > now_tick + period then
      repaired = true
    elseif stored_at > now_tick then
      at = stored_at
    end
    if not repaired and stored_at < at - at % period then
      count = 0
    end
    if count > limit then
      count = limit
    end
  end
  return count + wanted <= limit, repaired, at, count
end

local function fixed_window_state(code, charged, grain, period, _, at, count)
  count = count + charged
  local ends = 0
  if count > 0 then
    ends = (at - at % period + period) * grain
  end
  return struct.pack('<I4dd', code + 256 * grain, count, at), ends
end

local function fixed_window_left(limit, _, _, count)
  return limit - count
end

local function fixed_window_refund(stored, units, _, _, _, charge_tick, _, grain, period)
  local code, stored_grain, count, at = struct.unpack('<BI3dd', stored)
  local stored_at = in_grain(at, stored_grain, grain)
  local credit = math.min(units, count)
  if div(stored_at, period) ~= div(charge_tick, period) or credit == 0 then
    return nil
  end
  return struct.pack('<BI3dd', code, stored_grain, count - credit, at)
end

local function fixed_window_credit(units, _, count)
  if units > 0 and count > 0 then
    return math.max(count - units, 0)
  end
end
