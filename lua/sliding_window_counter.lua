-- Sliding window counter: at most `limit` units in any window, estimated from two counts.
-- The same step as crates/ratelimit-core/src/algorithm/sliding_window_counter.rs.
--
-- state   code; grain (microseconds); prev; cur; at, the tick of the last charge; period (ticks)
-- args    limit; period (ticks)
-- reply   at; prev and cur, the counts of the last window and the present one, before the hit
--
-- @format   dddd
-- @stored   prev_N, cur_N, since_N, stored_period_N
-- @usual    stored_period_N == period_N and since_N <= tick_N and prev_N <= limit_N and cur_N <= limit_N
-- @written  prev_N, spent_N, at_N, period_N
-- @numbers  prev_N, cur_N
-- @after    prev_N, spent_N

-- @section empty
prev_N, cur_N, since_N, stored_period_N = 0, 0, tick_N, period_N

-- @section read
if to_N - from_N ~= 35 then
  error('corrupt rate limit state')
end
prev_N, cur_N, since_N, stored_period_N = unpack('<dddd', value, from_N + 4)
local stored_grain_N, stored_elapsed_N = (stored_head - stored_head % 256) / 256, since_N % stored_period_N
since_N = since_N * stored_grain_N
since_N = (since_N - since_N % grain_N) / grain_N
repaired = repaired or since_N > tick_N + period_N
if since_N > tick_N + period_N or stored_period_N * stored_grain_N ~= period_N * grain_N then
  -- The estimate at the last charge, rounded up.
  local carried_N = prev_N * (stored_period_N - stored_elapsed_N)
  local over_N = carried_N % stored_period_N
  prev_N, cur_N = 0, cur_N + (carried_N - over_N) / stored_period_N + (over_N > 0 and 1 or 0)
end
if prev_N > limit_N then
  prev_N = limit_N
end
if cur_N > limit_N then
  cur_N = limit_N
end
if since_N > tick_N + period_N then
  -- Counts with that estimate at the present, with as much of it as possible in the previous window.
  since_N = tick_N
  local left_N = period_N - tick_N % period_N
  local over_N = limit_N * left_N % period_N
  local carried_N = (limit_N * left_N - over_N) / period_N + (over_N > 0 and 1 or 0)
  if carried_N > cur_N then
    carried_N = cur_N
  end
  if carried_N > 0 then
    prev_N = ((carried_N - 1) * period_N - (carried_N - 1) * period_N % left_N) / left_N + 1
    cur_N = cur_N - carried_N
  end
elseif since_N > tick_N then
  at_N = since_N
end

-- @section prepare
local left_N = period_N - at_N % period_N
local window_N = at_N + left_N - period_N

-- @section advance
if since_N < window_N then
  prev_N, cur_N = since_N >= window_N - period_N and cur_N or 0, 0
end
if prev_N * left_N > (limit_N - cur_N - wanted_N) * period_N then
  fits = false
end

-- @section fit
local over_N = prev_N * left_N % period_N
local used_N = cur_N + (prev_N * left_N - over_N) / period_N + (over_N > 0 and 1 or 0)
if used_N + fitting * cost > limit_N - reserve_N then
  fitting = (limit_N - reserve_N - used_N - (limit_N - reserve_N - used_N) % cost) / cost
end

-- @section ttl
keeps_ttl = keeps_ttl and since_N * grain_N >= second

-- @section charge
local spent_N = cur_N + fitting * cost
local windows_N = spent_N > 0 and 2 or prev_N > 0 and 1 or 0
if windows_N > 0 and (window_N + windows_N * period_N) * grain_N > ends then
  ends = (window_N + windows_N * period_N) * grain_N
end

-- @section settle
local function sliding_window_counter_left(limit, period, at, prev, cur)
  return limit - cur - div_up(prev * (period - at % period), period)
end

local function sliding_window_counter_refund(stored, units, _, _, _, charge_tick, _, grain, period)
  local code, stored_grain, prev, cur, at, stored_period = unpack('<BI3dddd', stored)
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
  return framed(pack('<BI3dddd', code, stored_grain, prev, cur, at, stored_period))
end

-- The present window gives first, then the previous one.
local function sliding_window_counter_credit(units, _, prev, cur)
  if units > 0 and prev + cur > 0 then
    local from_cur = math.min(units, cur)
    return prev - math.min(units - from_cur, prev), cur - from_cur
  end
end
