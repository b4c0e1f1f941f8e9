-- Sliding window counter: at most `limit` units in any window, estimated from two counts.
-- The same step as crates/ratelimit-core/src/algorithm/sliding_window_counter.rs.
--
-- state   code; grain (microseconds); prev; cur; at, the tick of the last charge; period (ticks)
-- args    limit; period (ticks)
-- reply   at; prev and cur, the counts of the last window and the present one, before the hit

-- The estimate at the last charge, rounded up.
local function sliding_window_counter_estimate(prev, cur, at, period)
  return cur + div_up(prev * (period - at % period), period)
end

-- Counts whose estimate at `at` is `estimate`, with as much of it as possible in the previous window.
local function sliding_window_counter_laid_out(estimate, at, limit, period)
  local left = period - at % period
  local carried = math.min(estimate, div_up(limit * left, period))
  local prev = 0
  if carried > 0 then
    prev = div((carried - 1) * period, left) + 1
  end
  return prev, estimate - carried
end

local function sliding_window_counter_roll(value, from, _, now_tick, wanted, grain, limit, period)
  local prev, cur, at, repaired = 0, 0, now_tick, false
  if from then
    local stored_grain, stored_at, stored_period
    _, stored_grain, prev, cur, stored_at, stored_period =
      struct.unpack('<BI3dddd', value, from)
    local tick = in_grain(stored_at, stored_grain, grain)
    at, repaired = catch_up(tick, now_tick, period)
    local changed = stored_period * stored_grain ~= period * grain
    if repaired or changed then
      prev, cur = 0, sliding_window_counter_estimate(prev, cur, stored_at, stored_period)
    end
    prev, cur = math.min(prev, limit), math.min(cur, limit)
    if repaired then
      prev, cur = sliding_window_counter_laid_out(cur, at, limit, period)
    else
      local windows = div(at, period) - div(tick, period)
      if windows == 1 then
        prev, cur = cur, 0
      elseif windows > 1 then
        prev, cur = 0, 0
      end
    end
  end
  local room = limit - cur - wanted
  local fits = prev * (period - at % period) <= room * period
  return fits, repaired, at, prev, cur
end

local function sliding_window_counter_state(code, charged, grain, period, _, at, prev, cur)
  cur = cur + charged
  local ends = 0
  if cur > 0 then
    ends = (at - at % period + 2 * period) * grain
  elseif prev > 0 then
    ends = (at - at % period + period) * grain
  end
  return struct.pack('<BI3dddd', code, grain, prev, cur, at, period), ends
end

local function sliding_window_counter_left(limit, period, at, prev, cur)
  return limit - cur - div_up(prev * (period - at % period), period)
end

local function sliding_window_counter_refund(stored, units, _, _, _, charge_tick, _, grain, period)
  local code, stored_grain, prev, cur, at, stored_period = struct.unpack('<BI3dddd', stored)
  if stored_period * stored_grain ~= period * grain then
    return nil
  end
  local windows = div(in_grain(at, stored_grain, grain), period) - div(charge_tick, period)
  local credit = 0
  if windows == 0 then
    credit = math.min(units, cur)
    cur = cur - credit
  elseif windows == 1 then
    credit = math.min(units, prev)
    prev = prev - credit
  end
  if credit == 0 then
    return nil
  end
  return struct.pack('<BI3dddd', code, stored_grain, prev, cur, at, stored_period)
end

-- The present window gives first, then the previous one.
local function sliding_window_counter_credit(units, _, prev, cur)
  if units > 0 and prev + cur > 0 then
    local from_cur = math.min(units, cur)
    return prev - math.min(units - from_cur, prev), cur - from_cur
  end
end
