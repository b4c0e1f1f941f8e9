-- Fragment: the frame at `place` of a value, its length and a state. Scripts include it as text.
--
-- takes    value; place; code of an algorithm
-- sets     behind, the place behind the frame; start, where its state begins if it is one of the algorithm, and
--          stored_head, the code and 256 times the grain of that state; is_other, whether it is the state of another
--          one. Nothing for a tail, and behind the last frame
if place + 7 <= #value then
  local length
  length, stored_head = unpack('<I4I4', value, place)
  if length >= 4 and stored_head % 256 == code then
    behind, start = place + 4 + length, place + 4
  elseif not (length == TAIL_LENGTH and stored_head % 256 == TAIL_CODE) then
    behind, is_other = place + 4 + length, length > 0
  end
  if behind > #value + 1 then
    error('corrupt rate limit state')
  end
elseif place <= #value then
  if value:sub(place) ~= '\0\0\0\0' then
    error('corrupt rate limit state')
  end
  behind = place + 4
end
