-- Decides one hit on one bucket, and charges further units in the same step, which the instance spends later.
-- The same numbers as crates/ratelimit-core/src/store/prefetch.rs, as debt: a unit is the debt that a token costs.
--
-- KEYS[1]  the value
-- ARGV[1]  behind unit, the request. Debt of the units that are wanted; of the most units that are given; of the units
--          that must be left, or else fewer are given; of an empty bucket without headroom; forgiven within the
--          horizon, and within the shortest life of a slice. Then scarcity, 1 or 4; cap, the share of the limit (units)
--
-- reply    one of four shapes, which differ in length. Decided: now (microseconds), the debt before the hit, expires
--          before the call (microseconds), the debt of the further units, and the tokens refunded, where there are any.
--          After the deadline: now. Left to prefetch.lua: now and REPLY_FALLBACK.

local pack, unpack = struct.pack, struct.unpack
local question = ARGV[1]
local deadline, price, most, refill, grain, shape, unit,
  given, most_given, plenty, empty, horizon_debt, min_debt, scarcity, cap, after =
  unpack('<ddddddddddddddd', question)
-- @include bucket_prelude

local key = KEYS[1]
local value = redis.call('GET', key)
local expires, debt, refunded, rest, keep_until, is_plain = 0, 0, 0, '', 0, true
-- @include bucket_step
if not is_plain then
  return pack('<dB', now, REPLY_FALLBACK)
end

local owed = debt + price
local is_charged = owed <= most and flags % 2 == 0
if is_charged then
  local left, top_up = empty - owed, horizon_debt - owed
  if top_up > given then
    given = top_up
  end
  if given > most_given then
    given = most_given
  end
  if left < plenty then
    -- In proportion to what is left. Large shares are scaled, so that the product stays below 2^53.
    left = left > 0 and (left - left % unit) / unit or 0
    local part = cap % 67108864
    local scale = (cap - part) / 67108864 + (part > 0 and 1 or 0)
    part = cap % scale
    local scaled_cap = (cap - part) / scale + (part > 0 and 1 or 0)
    local product = scarcity * ((given - given % unit) / unit) * ((left - left % scale) / scale)
    local shrunk = (product - product % scaled_cap) / scaled_cap
    left = (shrunk < left and shrunk or left) * unit
  end
  if given > left then
    given = left
  end
  given = given - given % unit
  if given < 4 * unit or owed + given <= min_debt then
    given = 0
  end
else
  given = 0
end
local reply = refunded > 0 and pack('<ddddd', now, debt, expires, given, refunded)
  or pack('<dddd', now, debt, expires, given)
if not is_charged or price + given == 0 then
  return reply
end

owed = owed + given
-- @include bucket_value
if expires > 9007199254740991 then
  return pack('<dB', now, REPLY_FALLBACK)
end
local ttl_text = ttl == 1000 and '1000' or string.format('%d', ttl)
redis.call('SET', key, rest == '' and value or value .. rest, 'PX', ttl_text)
return reply
