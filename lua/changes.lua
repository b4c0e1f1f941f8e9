-- The second part of the scripts that change what was charged: further arithmetic, and storing a value.

-- a / b, rounded up.
local function div_up(a, b)
  local rest = a % b
  if rest == 0 then
    return a / b
  end
  return (a - rest) / b + 1
end

-- A tick of one grain in another.
local function in_grain(tick, from, to)
  if from == to then
    return tick
  end
  return div(tick * from, to)
end

-- The frame at `place` of a value: the place behind it, and where its state begins if it is one of the algorithm `code`.
local function state_at(value, place, code)
  local behind, start, stored_head, is_other = place, nil, 0, nil
  -- @include frame
  return behind, start, is_other
end

-- The stored value and its expiry; an empty string and 0 where there is none, or it has expired.
local function stored_value(key)
  local value = redis.call('GET', key)
  if not value then
    return '', 0
  end
  local expires = unpack('<d', value)
  if now >= expires then
    return '', 0
  end
  return value, expires
end

-- Stores the states of all limits that count by a key, with their expiry.
local function store(key, states, expires)
  local ttl = math.max(div_up(expires - now, 1000), 1)
  if time_is_given then
    ttl = 3600000
  end
  -- The TTL is a string: Redis converts a Lua number with 17 digits, which takes far longer.
  redis.call('SET', key, pack('<d', expires) .. states, 'PX', string.format('%d', ttl))
end
