-- Decides one hit on one bucket.
--
-- KEYS[1]  the budget
--
-- answer   1 when it fits, now (microseconds) and the debt before it; 0 when it does not, the same and
--          expires (microseconds), which is told of all hits when nothing is written; 2 and now when the
--          deadline had passed; 255 and now when it is left to others. Neither of these has done anything.

local key = KEYS[1]
local value = redis.call('GET', key)
local expires, debt = 0, 0
if value then
  local stored_shape, unit, at
  if #value == 35 then
    expires, stored_shape, debt, unit, at = struct.unpack('<I7I7I7I7I7', value)
  end
  if stored_shape == shape and unit == period and at <= tick and debt <= most and now < expires then
    debt = debt - (tick - at) * refill
    if debt < 0 then
      debt = 0
    end
  elseif stored_shape and now >= expires then
    expires, debt = 0, 0
  else
    return struct.pack('<BI7', 255, now)
  end
end

local owed = debt + price
if owed > most or flags % 2 == 1 then
  return struct.pack('<BI7I7I7', owed <= most and 1 or 0, now, debt, expires)
end
local rest = owed % refill
local need = (tick + (owed - rest) / refill + (rest > 0 and 1 or 0)) * grain - now
local ttl, ttl_text = 1000, '1000'
if need > 999000 then
  rest = need % 1000
  ttl = (need - rest) / 1000 + (rest > 0 and 2 or 1)
  ttl_text = string.format('%d', ttl)
end
expires = now + ttl * 1000
if expires > 9007199254740991 then
  return struct.pack('<BI7', 255, now)
end
if flags >= 2 then
  ttl_text = '3600000'
end
redis.call('PSETEX', key, ttl_text, struct.pack('<I7I7I7I7I7', expires, shape, owed, period, tick))
return struct.pack('<BI7I7', 1, now, debt)
