-- Fragment: the sections of an algorithm as functions, for the general scripts. ALGORITHM is its name; the lists are
-- those of its file. check_unrolled.lua has the same sections inline.

-- Brings the state in the bytes `from` to `to` of `value` to the present; `from` is nil when there is none.
local function ALGORITHM_roll(value, from, to, tick, wanted, grain, limit, period, rate)
  local at, fits, repaired = tick, true, false
  -- @each demand
  -- @each local empty
  if from then
    local stored_head = unpack('<I4', value, from)
    -- @each read
  end
  -- @each prepare
  -- @each advance
  -- @each keep
  return fits, repaired, ROLLED
end

-- The frame of a state after a charge of `cost`, when it ends (microseconds, 0 when nothing is spent), and whether the
-- value must not expire earlier than before.
local function ALGORITHM_state(code, cost, grain, period, rate, ROLLED)
  local head, fitting, ends, keeps_expiry = code + 256 * grain, 1, 0, false
  -- @each prepare
  -- @each charge
  return STATES, ends, keeps_expiry
end
