-- Decides one hit on one bucket.
--
-- KEYS[1]  the value
--
-- reply    one of four shapes, which differ in length. Charged: the value that was written, which is expires
--          (microseconds), shape, the debt with the hit, unit, now (microseconds), and the tokens refunded, where there
--          are any. Not charged: now, debt, expires. After the deadline: now. Left to check_one.lua: now and
--          REPLY_FALLBACK.

local pack, unpack = struct.pack, struct.unpack
local question = ARGV[1]
local deadline, price, most, refill, grain, shape, unit, after = unpack('<ddddddd', question)
-- @include bucket_prelude

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
-- @include bucket_value
if expires > 9007199254740991 then
  return pack('<dB', now, REPLY_FALLBACK)
end
local ttl_text = ttl == 1000 and '1000' or string.format('%d', ttl)
redis.call('SET', key, rest == '' and value or value .. rest, 'PX', ttl_text)
return value
