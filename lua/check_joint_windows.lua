-- Decides a joint hit whose members all must fit, each on a fixed window of its own and with a cost above 0. It is a
-- fast path for the rules of Envoy's rate limit server, which are fixed windows: there are no functions, and each value
-- is unpacked and packed once. Four members take 36 % fewer instructions of the server than in check_joint.lua.
--
-- It takes the same step as fixed_window.lua for the usual values: none, or one that holds a single state, which was
-- written under the same grain and is not ahead of the clock. With any other value nothing is written, and
-- check_joint.lua decides.
--
-- KEYS     the value of each member, in the order of the members
-- ARGV[1]  as in check_joint.lua
--
-- reply    REPLY_FALLBACK and now (microseconds); or REPLY_ALLOWED or REPLY_DENIED, now, and for each member the value
--          with the hit, in front of it where the joint hit is denied the stored expires (microseconds)

local pack, unpack, call = struct.pack, struct.unpack, redis.call
local argument, keys = ARGV[1], KEYS
local flags, now, deadline, _, place = unpack('<Bddd', argument)
if flags < 2 then
  now = call('TIME')
  now = now[1] * 1000000 + now[2]
end
if deadline > 0 and now > deadline then
  return pack('<Bd', REPLY_TOO_LATE, now)
end

local status, values = REPLY_ALLOWED, { nil, nil, nil, nil }
local ttls, expiries = { nil, nil, nil, nil }, { nil, nil, nil, nil }
for number = 1, #keys do
  local cost, shape, limit, period, reserve, grain, count, expires
  cost, shape, limit, period, reserve, place = unpack('<xxdxxxI4ddxxxxxxxxd', argument, place)
  grain, count, expires = (shape - shape % 256) / 256, 0, 0
  local at = (now - now % grain) / grain
  local start = at - at % period
  local value = call('GET', keys[number])
  if value then
    local length, stored_shape, stored_count, stored_at
    if #value == 32 then
      expires, length, stored_shape, stored_count, stored_at = unpack('<dI4I4dd', value)
    end
    if
      not (
        length == 20 and stored_shape == shape and stored_at <= at and stored_count >= 0 and stored_count % 1 == 0
        and expires % 1 == 0
      )
    then
      return pack('<Bd', REPLY_FALLBACK, now)
    end
    if now >= expires then
      expires = 0
    elseif stored_at >= start then
      count = stored_count < limit and stored_count or limit
    end
  end
  count = count + cost
  if count + reserve > limit then
    status = REPLY_DENIED
  end
  -- As expiry() of prelude.lua.
  local need = (start + period) * grain - now
  local part = need % 1000
  local ttl = (need - part) / 1000 + (part > 0 and 2 or 1)
  if ttl < 1000 then
    ttl = 1000
  end
  if now + ttl * 1000 >= 9007199254740992 then
    return pack('<Bd', REPLY_FALLBACK, now)
  end
  values[number] = pack('<dI4I4dd', now + ttl * 1000, 20, shape, count, at)
  ttls[number], expiries[number] = ttl, expires
end

if status == REPLY_DENIED then
  for number = 1, #keys do
    values[number] = pack('<d', expiries[number]) .. values[number]
  end
else
  for number = 1, #keys do
    local ttl = flags < 2 and ttls[number] or 3600000
    call('SET', keys[number], values[number], 'PX', string.format('%d', ttl))
  end
end
return pack('<Bd', status, now) .. table.concat(values)
