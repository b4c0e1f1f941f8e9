-- Fragment: reads the value of one bucket and refills the bucket. The bucket scripts include it as text, because
-- a function would cost the server more than the step itself.
--
-- takes    value, what GET replied
-- sets     expires, debt (after the refill), refunded, rest, keep_until, as for no value where the stored one
--          has expired; is_plain, false where the value is left to the general script
if value then
  local stored_shape, stored_unit, at
  if #value == 40 then
    expires, stored_shape, debt, stored_unit, at = unpack('<ddddd', value)
  elseif #value > 40 then
    expires, stored_shape, debt, stored_unit, at, refunded, rest, keep_until = read_long(value)
  end
  if stored_shape == shape and stored_unit == unit and at <= now and debt <= most and now < expires then
    debt = debt - (tick - (at - at % grain) / grain) * refill
    if debt < 0 then
      debt = 0
    end
  elseif stored_shape and now >= expires then
    expires, debt, refunded, rest, keep_until = 0, 0, 0, '', 0
  else
    is_plain = false
  end
end
