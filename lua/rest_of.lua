-- Fragment: a function that both general scripts and check_unrolled.lua define, where they need it.

-- The frames of a value from `place` on, behind those of the hit's own limits, of which there are `own`. They must be
-- kept: the states of limits that the hit's policy does not have, because another version or tier of it has more, and
-- the tail, which is the last frame where there is one. The tail says until when the states of unknown limits and the
-- last reset count, when that reset was (microseconds, -1 for none), and how many limits of this key the last policy had.
--
-- Also returns until when they count, and the time of the last reset. States that the last policy had count until the
-- value expires, and those behind them until the time in the tail. Nothing when the value is corrupt.
local function rest_of(bytes, place, ends, own)
  local at, keep_until, reset_at, has_states = place, ends, -1, false
  while at <= #bytes do
    if at + 3 > #bytes then
      return
    end
    local length, first = unpack('<I4', bytes, at)
    if first + length > #bytes + 1 then
      return
    end
    if length == TAIL_LENGTH and bytes:byte(first) == TAIL_CODE then
      local known
      keep_until, reset_at, known = unpack('<ddB', bytes, first + 1)
      if own < known and ends > keep_until then
        keep_until = ends
      end
      break
    end
    at, has_states = first + length, has_states or length > 0
  end
  if now >= keep_until or not (has_states or reset_at >= 0) then
    return '', 0, -1
  end
  local states = has_states and bytes:sub(place, at - 1) or ''
  return states .. pack('<I4BddB', TAIL_LENGTH, TAIL_CODE, keep_until, reset_at, own), keep_until, reset_at
end
