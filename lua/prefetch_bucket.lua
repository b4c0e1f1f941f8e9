-- Decides one hit on one bucket, and charges further units in the same step, which the instance spends later.
-- The same numbers as crates/ratelimit-core/src/store/prefetch.rs.
--
-- KEYS[1]  the value
-- ARGV[2]  want (units, at most 2^24); scarcity, 1 or 4; cap, the share of the limit (units); the debt of an empty
--          bucket without headroom; the debt forgiven within the horizon, and within the shortest life of a slice
--
-- reply    one of three shapes, which differ in length. Decided: now (microseconds), the debt before the hit, expires
--          before the call (microseconds), the further units, the tokens refunded. After the deadline: now. Left to
--          prefetch.lua: now and REPLY_FALLBACK.

local key = KEYS[1]
local value = redis.call('GET', key)
local expires, debt, refunded, rest, keep_until, is_plain = 0, 0, 0, '', 0, true
-- @include bucket_step
if not is_plain then
  return pack('<dB', now, REPLY_FALLBACK)
end

local owed = debt + price
if owed > most or flags % 2 == 1 then
  return pack('<ddddd', now, debt, expires, 0, refunded)
end

local want, scarcity, cap, empty, horizon_debt, min_debt = unpack('<dddddd', ARGV[2])
local left, top_up, least = empty - owed, horizon_debt - owed, 4
left = left > 0 and (left - left % unit) / unit or 0
if top_up > 0 then
  top_up = (top_up - top_up % unit) / unit
  if top_up > want then
    want = top_up > 16777216 and 16777216 or top_up
  end
end
if want > cap then
  want = cap
end
local units = want < left and want or left
local part = cap % scarcity
if left < (cap - part) / scarcity + (part > 0 and 1 or 0) then
  -- Less than the share is left. Large shares are scaled, so that the product stays below 2^53.
  part = cap % 67108864
  local scale = (cap - part) / 67108864 + (part > 0 and 1 or 0)
  part = cap % scale
  local scaled_cap = (cap - part) / scale + (part > 0 and 1 or 0)
  local product = scarcity * want * ((left - left % scale) / scale)
  local shrunk = (product - product % scaled_cap) / scaled_cap
  if shrunk < units then
    units = shrunk
  end
end
if min_debt >= owed then
  local missing = min_debt - owed
  missing = (missing - missing % unit) / unit + 1
  if missing > least then
    least = missing
  end
end
if units < least then
  units = 0
end
local reply = pack('<ddddd', now, debt, expires, units, refunded)
if price == 0 and units == 0 then
  return reply
end

owed = owed + units * unit
part = owed % refill
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
return reply
