-- Decides hits of one cost on several buckets: bucket_one.lua for several keys, of each as many hits as there
-- is room for.
--
-- KEYS     the budgets that are spent of
-- ARGV[2]  one byte for each key: how many hits it gets; empty when each gets one
--
-- answer   now (microseconds), alone when the deadline had passed; for each key the value that was written,
--          when all its hits are charged; -256 when it is left to others, or cannot be read or written, and
--          nothing was done for it; otherwise -1 less how many hits fit, the debt before them, and expires
--          (microseconds)

local call, counts = redis.pcall, ARGV[2]
local writes = flags % 2 == 0
local last_ttl, ttl_text = 1000, '1000'
local answers = { pack('<d', now) }

for number = 1, #KEYS do
  local key = KEYS[number]
  local count = 1
  if counts ~= '' then
    count = counts:byte(number)
  end
  local value = call('GET', key)
  local expires, debt, is_plain = 0, 0, true
  if value then
    local stored_shape, stored_unit, at
    if #value == 40 then
      expires, stored_shape, debt, stored_unit, at = unpack('<ddddd', value)
    end
    if stored_shape == shape and stored_unit == unit and at <= now and debt <= most and now < expires then
      debt = debt - (tick - (at - at % grain) / grain) * refill
      if debt < 0 then
        debt = 0
      end
    elseif stored_shape and now >= expires then
      expires, debt = 0, 0
    else
      is_plain = false
    end
  end

  local fitting = 0
  if is_plain and debt + price <= most then
    fitting = count
    if writes then
      if count > 1 and debt + count * price > most then
        local left = most - debt
        fitting = (left - left % price) / price
      end
      local owed = debt + fitting * price
      local rest = owed % refill
      local need = (tick + (owed - rest) / refill + (rest > 0 and 1 or 0)) * grain - now
      local ttl = 1000
      if need > 999000 then
        rest = need % 1000
        ttl = (need - rest) / 1000 + (rest > 0 and 2 or 1)
      end
      expires = now + ttl * 1000
      if flags >= 2 then
        ttl = 3600000
      end
      if ttl ~= last_ttl then
        last_ttl, ttl_text = ttl, string.format('%d', ttl)
      end
      value = pack('<ddddd', expires, shape, owed, unit, now)
      is_plain = expires < 9007199254740992 and not call('PSETEX', key, ttl_text, value).err
    end
  end

  if not is_plain then
    answers[number + 1] = pack('<d', -256)
  elseif writes and fitting == count then
    answers[number + 1] = value
  else
    answers[number + 1] = pack('<ddd', -1 - fitting, debt, expires)
  end
end
return table.concat(answers)
