-- Changes a charge that was made earlier, for all limits of a policy. The line before this file defines
-- `algorithms`: for each code the functions roll, state, left, refund, release, renew, credit and
-- release_oldest, or nil.
--
-- ARGV[1]  as in prelude.lua, without a deadline; cost is the number of units
-- ARGV[2]  the id of the slot, 8 bytes
-- ARGV[3]  SETTLE_REFUND, SETTLE_CHARGE, SETTLE_RELEASE, SETTLE_RENEW, SETTLE_CATCH_UP, SETTLE_CREDIT or
--          SETTLE_RELEASE_OLDEST; whether the whole cost is refunded (1) or not (0); the time of the charge
--          (microseconds); its cost; for each limit its mark (the units to charge for SETTLE_CATCH_UP), and the
--          tokens that its bucket had refunded by then
--
-- reply    SETTLED_UNCHANGED, SETTLED_APPLIED or SETTLED_LEASE_LOST; now (microseconds)

local change, is_whole, charged_at, charged_cost, next_mark = struct.unpack('<BBdd', ARGV[3])
local has_changed, is_lost = false, false

local budgets = {}
for number, key in ipairs(KEYS) do
  local value, expires = stored_value(key)
  -- 255 limits: only the time of the reset is needed here.
  local _, _, reset_at = rest_of(value, 9, expires, 255)
  budgets[number] = {
    key = key, value = value, expires = expires, expires_after = expires, reset_at = reset_at, next_state = 9,
    states = {}, has_changed = false,
  }
end

-- The state of one limit after the change, and its end; nil when it stays.
local function settled(l, stored, raw, reset_at)
  local roll, state, left, refund, release, renew, credit, release_oldest = unpack(algorithms[l.code], 1, 8)
  local now_tick = div(now, l.grain)
  if release and (change == SETTLE_RELEASE or (change == SETTLE_REFUND and is_whole == 1)) then
    return stored and release(stored)
  elseif release_oldest and change == SETTLE_RELEASE_OLDEST then
    return stored and release_oldest(stored, now_tick)
  elseif credit and change == SETTLE_CREDIT and stored then
    local _, _, at, a, b, c, stamps =
      roll(stored, 1, #raw, now_tick, 0, l.grain, l.limit, l.period, l.rate, 0)
    a, b, stamps = credit(cost, l.period, a, b, stamps)
    if a then
      return state(l.code, 0, l.grain, l.period, l.rate, at, a, b, c, stamps)
    end
  elseif renew and change == SETTLE_RENEW then
    local is_held, renewed, ends = false, nil, nil
    if stored then
      is_held, renewed, ends = renew(stored, now_tick, l.period)
    end
    is_lost = is_lost or not is_held
    return renewed, ends
  elseif refund and change == SETTLE_REFUND and stored and l.mark > 0 and charged_at > reset_at then
    local charge_tick = div(charged_at, l.grain)
    return refund(
      stored, cost, charged_cost, l.mark, l.refunded_before, charge_tick, now_tick, l.grain, l.period, l.rate)
  elseif left and (change == SETTLE_CHARGE or change == SETTLE_CATCH_UP) and (stored or raw == '') then
    local _, _, at, a, b, c, stamps =
      roll(stored, stored and 1, #raw, now_tick, 0, l.grain, l.limit, l.period, l.rate, 0)
    local wanted = change == SETTLE_CHARGE and cost or (charged_at > reset_at and l.mark or 0)
    local units = math.min(wanted, left(l.limit, l.period, at, a, b, c))
    if units > 0 then
      return state(l.code, units, l.grain, l.period, l.rate, at, a, b, c, stamps)
    end
  end
end

local next_limit = first_limit
while next_limit <= #ARGV[1] do
  local l = {}
  local number
  number, l.code, l.grain, l.limit, l.period, l.rate, l.reserve, next_limit =
    struct.unpack('<BBI3dddd', ARGV[1], next_limit)
  l.mark, l.refunded_before, next_mark = struct.unpack('<dd', ARGV[3], next_mark)
  local budget = budgets[number + 1]
  local stored, raw
  stored, budget.next_state, raw = state_at(budget.value, budget.next_state, l.code)
  local state, ends = settled(l, stored, raw, budget.reset_at)
  if state then
    budget.has_changed, has_changed = true, true
    if ends then
      budget.expires_after = math.max(budget.expires_after, expiry(ends, budget.expires))
    end
  end
  budget.states[#budget.states + 1] = framed(state or raw)
end

-- All that can fail comes before the first write: an error does not undo it.
for _, budget in ipairs(budgets) do
  if budget.has_changed then
    local rest = rest_of(budget.value, budget.next_state, budget.expires, #budget.states)
    budget.written = table.concat(budget.states) .. rest
    local is_exact = budget.expires_after < 9007199254740992 and budget.expires_after % 1 == 0
    if not is_exact then
      error('corrupt rate limit state')
    end
  end
end
for _, budget in ipairs(budgets) do
  if budget.written then
    store(budget.key, budget.written, budget.expires_after)
  end
end

local status = has_changed and SETTLED_APPLIED or SETTLED_UNCHANGED
return struct.pack('<Bd', is_lost and SETTLED_LEASE_LOST or status, now)
