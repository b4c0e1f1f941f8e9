-- Fixed window: at most `limit` units in each window of the clock.
-- The same step as crates/ratelimit-core/src/algorithm/fixed_window.rs.
--
-- state   code; grain (microseconds); count; at, the tick of the last charge
-- args    limit; period (ticks)
-- reply   at; count of the present window, before the hit
--
-- @format   dd
-- @stored   count_N, since_N
-- @usual    since_N <= tick_N and count_N <= limit_N
-- @written  spent_N, at_N
-- @numbers  count_N
-- @after    spent_N

-- @section empty
count_N, since_N = 0, tick_N

-- @section read
if to_N - from_N ~= 19 then
  error('corrupt rate limit state')
end
count_N, since_N = unpack('<dd', value, from_N + 4)
since_N = since_N * (stored_head - stored_head % 256) / 256
since_N = (since_N - since_N % grain_N) / grain_N
if since_N > tick_N + period_N then
  since_N, repaired = tick_N, true
elseif since_N > tick_N then
  at_N = since_N
end
if count_N > limit_N then
  count_N = limit_N
end

-- @section prepare
local window_N = at_N - at_N % period_N

-- @section advance
if since_N < window_N then
  count_N = 0
end
if count_N + wanted_N > limit_N then
  fits = false
end

-- @section fit
if count_N + fitting * cost > limit_N - reserve_N then
  fitting = (limit_N - reserve_N - count_N - (limit_N - reserve_N - count_N) % cost) / cost
end

-- @section ttl
keeps_ttl = keeps_ttl and since_N * grain_N >= second

-- @section charge
local spent_N = count_N + fitting * cost
if spent_N > 0 and (window_N + period_N) * grain_N > ends then
  ends = (window_N + period_N) * grain_N
end

-- @section settle
local function fixed_window_left(limit, _, _, count)
  return limit - count
end

local function fixed_window_refund(stored, units, _, _, _, charge_tick, _, grain, period)
  local code, stored_grain, count, at = unpack('<BI3dd', stored)
  local stored_at = in_grain(at, stored_grain, grain)
  local credit = math.min(units, count)
  if div(stored_at, period) ~= div(charge_tick, period) or credit == 0 then
    return nil
  end
  return framed(pack('<BI3dd', code, stored_grain, count - credit, at))
end

local function fixed_window_credit(units, _, count)
  if units > 0 and count > 0 then
    return math.max(count - units, 0)
  end
end
