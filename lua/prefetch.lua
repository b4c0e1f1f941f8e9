-- Decides one hit on a policy of any limits that can be prefetched, and charges further units in the same step, which
-- the instance spends later. The same numbers as crates/ratelimit-core/src/store/prefetch.rs. The line before this
-- file defines `algorithms`: for each code the functions roll, state and left, and the format of its numbers.
--
-- ARGV[2]  want (units, at most 2^24); scarcity, 1 or 4; horizon and the shortest life of a slice (microseconds); then
--          for each limit cap, the share of the limit (units); the units of headroom; the debt that a bucket forgives
--          within the horizon, and within the shortest life
--
-- reply    REPLY_ALLOWED or REPLY_DENIED; now (microseconds); the further units; expires of each key (microseconds);
--          the numbers of each limit before the hit

local writes_nothing = flags % 2 == 1

-- The state at `from`, if it is one of the algorithm `code`, where the next begins, and the frame.
local function read_state(value, from, code)
  local behind, start = state_at(value, from, code)
  local raw = behind > from and value:sub(from, behind - 1) or framed('')
  return start and raw:sub(5), behind, raw
end

local want, scarcity, horizon, min_life, next_share = unpack('<dddd', ARGV[2])

-- The part of `wanted` that is given while `left` units remain: all of it while more than the share is left, and in
-- proportion below. Large shares are scaled, so that the product stays below 2^53.
local function shrunk(wanted, left, cap)
  wanted = math.min(wanted, cap)
  local units = math.min(wanted, left)
  if left * scarcity >= cap then
    return units
  end
  local scale = div_up(cap, 67108864)
  return math.min(units, div(scarcity * wanted * div(left, scale), div_up(cap, scale)))
end

-- @include read_budgets

local limits = {}
local all_fit, units, least = true, 9007199254740992, 4
local next_limit = first_limit
while next_limit <= #ARGV[1] do
  local number, code, grain, limit, period, rate, reserve, stored, raw
  number, code, grain, limit, period, rate, reserve, next_limit =
    unpack('<BBI3dddd', ARGV[1], next_limit)
  local cap, extra, horizon_debt, min_debt
  cap, extra, horizon_debt, min_debt, next_share = unpack('<dddd', ARGV[2], next_share)
  local budget = budgets[number + 1]
  stored, budget.next_state, raw = read_state(budget.value, budget.next_state, code)
  local now_tick = div(now, grain)
  local fits, repaired, at, a, b, c =
    algorithms[code][1](stored, stored and 1, #raw - 4, now_tick, cost + reserve, grain, limit, period, rate, reserve)
  for _, number_of_reply in ipairs({ at, a, b or 0 }) do
    -- Rust rejects a reply with other numbers, and then nothing may have been charged.
    if not (number_of_reply >= 0 and number_of_reply < 9007199254740992 and number_of_reply % 1 == 0) then
      error('corrupt rate limit state')
    end
  end
  all_fit = all_fit and (fits or cost == 0)
  budget.is_written = budget.is_written or repaired

  local given = 0
  if repaired or at ~= now_tick then
    given = 0
  elseif rate > 0 then
    local debt = a + cost * period
    local left = math.max(algorithms[code][3](limit - extra, period, at, debt), 0)
    local top_up = math.min(div(math.max(horizon_debt - debt, 0), period), 16777216)
    given = shrunk(math.max(want, top_up), left, cap)
    if min_debt >= debt then
      least = math.max(least, div(min_debt - debt, period) + 1)
    end
  else
    local life = (at - at % period + period) * grain - now
    local left = math.max(algorithms[code][3](limit - extra, period, at, a, b) - cost, 0)
    if life > min_life then
      given = math.min(shrunk(want, left, cap), life < horizon and div(want * life, horizon) or want)
    end
  end
  units = math.min(units, given)
  limits[#limits + 1] = {
    budget = budget, code = code, grain = grain, period = period, rate = rate, raw = raw, repaired = repaired,
    at = at, a = a, b = b, c = c,
  }
end
if units < least or not all_fit or writes_nothing then
  units = 0
end

local charged = all_fit and cost + units or 0
local writes = not writes_nothing and not (all_fit and charged == 0)
local answer = { pack('<Bdd', all_fit and REPLY_ALLOWED or REPLY_DENIED, now, units) }
-- @include write_budgets
