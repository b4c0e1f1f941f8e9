-- Changes a charge that was made earlier, for all limits of a policy. The line before this file defines
-- `algorithms`: for each code the functions roll, state, left, refund, release, renew and
-- credit, or nil.
--
-- ARGV[1]  as in prelude.lua, without a deadline; cost is the number of units; then for each limit the number of its
--          key (from 0), and the rest as in check.lua
-- ARGV[2]  the id of the slot, 8 bytes
-- ARGV[3]  SETTLE_REFUND, SETTLE_CHARGE, SETTLE_RELEASE, SETTLE_RENEW, SETTLE_CATCH_UP or SETTLE_CREDIT; whether the
--          whole cost is refunded (1) or not (0); the time of the charge (microseconds); its cost; for each limit its
--          mark (the units to charge for SETTLE_CATCH_UP), and the tokens that its bucket had refunded by then
--
-- reply    SETTLED_UNCHANGED, SETTLED_APPLIED or SETTLED_LEASE_LOST; now (microseconds)

local change, is_whole, charged_at, charged_cost, next_mark = unpack('<BBdd', ARGV[3])
local has_changed, is_lost = false, false

local budgets = {}
for number, key in ipairs(KEYS) do
  local value, expires = stored_value(key)
  -- 255 limits: only the time of the reset is needed here.
  local rest, _, reset_at = rest_of(value, 9, expires, 255)
  if not rest then
    error('corrupt rate limit state')
  end
  budgets[number] = {
    key = key, value = value, expires = expires, expires_after = expires, reset_at = reset_at, next_state = 9,
    frames = {}, has_changed = false,
  }
end

-- The frame of one limit after the change, and when it ends; nil when it stays.
local function settled(l, stored, raw, reset_at)
  local functions = algorithms[l.code]
  local roll, state, left, refund = functions[1], functions[2], functions[3], functions[4]
  local release, renew, credit = functions[5], functions[6], functions[7]
  local now_tick = div(now, l.grain)
  if release and (change == SETTLE_RELEASE or (change == SETTLE_REFUND and is_whole == 1)) then
    return stored and release(stored, ARGV[2])
  elseif credit and change == SETTLE_CREDIT and stored then
    local _, _, at, a, b, c, stamps =
      roll(stored, 1, #stored, now_tick, 0, l.grain, l.limit, l.period, l.rate, 0)
    a, b, stamps = credit(cost, l.period, a, b, stamps)
    if a then
      return state(l.code, 0, l.grain, l.period, l.rate, at, a, b, c, stamps)
    end
  elseif renew and change == SETTLE_RENEW then
    local is_held, renewed, ends = false, nil, nil
    if stored then
      is_held, renewed, ends = renew(stored, now_tick, l.period, ARGV[2])
    end
    is_lost = is_lost or not is_held
    return renewed, ends
  elseif refund and change == SETTLE_REFUND and stored and l.mark > 0 and charged_at > reset_at then
    local charge_tick = div(charged_at, l.grain)
    return refund(
      stored, cost, charged_cost, l.mark, l.refunded_before, charge_tick, now_tick, l.grain, l.period, l.rate)
  elseif left and (change == SETTLE_CHARGE or change == SETTLE_CATCH_UP) and (stored or #raw == 4) then
    local _, _, at, a, b, c, stamps =
      roll(stored, stored and 1, #raw - 4, now_tick, 0, l.grain, l.limit, l.period, l.rate, 0)
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
    unpack('<BBI3dddd', ARGV[1], next_limit)
  l.mark, l.refunded_before, next_mark = unpack('<dd', ARGV[3], next_mark)
  local budget = budgets[number + 1]
  local from = budget.next_state
  local behind, start = state_at(budget.value, from, l.code)
  budget.next_state = behind
  local raw = behind > from and budget.value:sub(from, behind - 1) or framed('')
  local frame, ends = settled(l, start and raw:sub(5), raw, budget.reset_at)
  if frame then
    budget.has_changed, has_changed = true, true
    if ends then
      budget.expires_after = math.max(budget.expires_after, expiry(ends, budget.expires))
    end
  end
  budget.frames[#budget.frames + 1] = frame or raw
end

-- All that can fail comes before the first write: an error does not undo it.
for _, budget in ipairs(budgets) do
  if budget.has_changed then
    local rest = rest_of(budget.value, budget.next_state, budget.expires, #budget.frames)
    budget.written = table.concat(budget.frames) .. rest
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
return pack('<Bd', is_lost and SETTLED_LEASE_LOST or status, now)
