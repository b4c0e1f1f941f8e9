-- Decides one hit on one bucket.
--
-- KEYS[1]  the value
--
-- reply    one of four shapes, which differ in length. Charged: the value that was written, which is expires
--          (microseconds), shape, the debt with the hit, unit, now (microseconds), and the tokens refunded, where there
--          are any. Not charged: now, debt, expires. After the deadline: now. Left to check_one.lua: now and
--          REPLY_FALLBACK.

local key = KEYS[1]
local value = redis.call('GET', key)
local expires, debt, refunded, rest, keep_until, is_plain = 0, 0, 0, '', 0, true
-- @include bucket_step
if not is_plain then
  return pack('<dB', now, REPLY_FALLBACK)
end

local owed = debt + price
if owed > most or flags % 2 == 1 then
  return pack('<ddd', now, debt, expires)
end
local part = owed % refill
local need = (tick + (owed - part) / refill + (part > 0 and 1 or 0)) * grain - now
local ttl, ttl_text = 1000, '1000'
if need > 999000 then
  part = need % 1000
  ttl = (need - part) / 1000 + (part > 0 and 2 or 1)
  ttl_text = string.format('%d', ttl)
end
if refunded > 0 and expires > keep_until then
  -- The value keeps its refunds for as long as earlier receipts can be settled.
  keep_until = expires
end
expires = now + ttl * 1000
if expires < keep_until then
  expires = keep_until
  part = (expires - now) % 1000
  ttl_text = string.format('%d', (expires - now - part) / 1000 + (part > 0 and 1 or 0))
end
if expires > 9007199254740991 then
  return pack('<dB', now, REPLY_FALLBACK)
end
if flags >= 2 then
  ttl_text = '3600000'
end
if refunded > 0 then
  value = pack('<d', expires) .. '\36\0\0\0' .. question:sub(45, 48) .. pack('<dddd', owed, unit, now, refunded)
else
  value = pack('<ddddd', expires, shape, owed, unit, now)
end
redis.call('SET', key, rest == '' and value or value .. rest, 'PX', ttl_text)
return value
