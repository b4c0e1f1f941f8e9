-- Fragment: the value of one bucket after a charge. The bucket scripts include it as text.
--
-- takes    owed, the debt with the charge; all that bucket_step.lua sets
-- sets     value, to be written; expires (microseconds); ttl (milliseconds)
local part = owed % refill
local need = (tick + (owed - part) / refill + (part > 0 and 1 or 0)) * grain - now
local ttl = 1000
if need > 999000 then
  part = need % 1000
  ttl = (need - part) / 1000 + (part > 0 and 2 or 1)
end
if refunded > 0 and expires > keep_until then
  -- The value keeps its refunds for as long as earlier receipts can be settled.
  keep_until = expires
end
expires = now + ttl * 1000
if expires < keep_until then
  expires = keep_until
  part = (expires - now) % 1000
  ttl = (expires - now - part) / 1000 + (part > 0 and 1 or 0)
end
if flags >= 2 then
  ttl = 3600000
end
if refunded > 0 then
  value = pack('<d', expires) .. '\36\0\0\0' .. question:sub(45, 48) .. pack('<dddd', owed, unit, now, refunded)
else
  value = pack('<ddddd', expires, shape, owed, unit, now)
end
