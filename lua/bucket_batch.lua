-- Decides hits of one cost on token buckets, or on leaky ones: those of policies that have no other limit,
-- which most have not. The same step as token_bucket.lua's, for what is nearly always found: no budget,
-- or one that was written under the same limit, and not ahead of the clock. Whatever else is found is left
-- to the scripts for all policies.
--
-- It is the script that is called most, and a server pays for each function that a script contains, for
-- each call, and for each number that is packed or unpacked. So there are no functions here, and no helpers.
--
-- KEYS     the budgets that are spent of
-- ARGV[1]  as in policy_head.lua
-- ARGV[2]  one byte for each key: how many hits it gets; empty when each gets one
--
-- answer   0; now (microseconds); for each key how many hits fit, the debt before them, and, unless all
--          fit, expires (microseconds). 255 alone for a key that is left to others: nothing was done for
--          it. 2 and now alone when the deadline had passed.

local flags, now, deadline, cost, code, grain, capacity, period, refill, reserve =
  struct.unpack('<BI7I7I7xBI3I7I7I7I7', ARGV[1])
if flags < 2 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline > 0 and now > deadline then
  return struct.pack('<BI7', 2, now)
end

local pack, unpack, call, counts = struct.pack, struct.unpack, redis.pcall, ARGV[2]
local tick = (now - now % grain) / grain
-- The length of the state, its code and its grain, as one number.
local shape = 25 + code * 16777216 + grain * 4294967296
local full, price, most = capacity * period, cost * period, (capacity - reserve) * period
local writes = flags % 2 == 0
local last_ttl, ttl_text = 1000, '1000'
local is_alone = #KEYS == 1
local answers = not is_alone and { pack('<BI7', 0, now) }

for number = 1, #KEYS do
  local key = KEYS[number]
  local count = 1
  if counts ~= '' then
    count = counts:byte(number)
  end
  local value = call('GET', key)
  local expires, debt, is_plain = 0, 0, true
  if value and #value == 35 then
    local stored_shape, unit, at
    expires, stored_shape, debt, unit, at = unpack('<I7I7I7I7I7', value)
    if now >= expires then
      expires, debt = 0, 0
    elseif stored_shape == shape and unit == period and at <= tick and debt <= full then
      debt = debt - (tick - at) * refill
      if debt < 0 then
        debt = 0
      end
    else
      is_plain = false
    end
  elseif value then
    is_plain = false
  end

  local fitting = 0
  if cost == 0 then
    fitting = count
  elseif debt + price <= most then
    fitting = count
    if writes then
      if count > 1 and debt + count * price > most then
        local left = most - debt
        fitting = (left - left % price) / price
      end
      local owed = debt + fitting * price
      local rest = owed % refill
      local need = (tick + (owed - rest) / refill + (rest > 0 and 1 or 0)) * grain - now
      rest = need % 1000
      local ttl = (need - rest) / 1000 + (rest > 0 and 2 or 1)
      if ttl < 1000 then
        ttl = 1000
      end
      expires = now + ttl * 1000
      if flags >= 2 then
        ttl = 3600000
      end
      if ttl ~= last_ttl then
        last_ttl, ttl_text = ttl, string.format('%d', ttl)
      end
      is_plain = is_plain and expires < 9007199254740992
        and not call('PSETEX', key, ttl_text, pack('<I7I7I7I7I7', expires, shape, owed, period, tick)).err
    end
  end

  if not is_plain then
    if is_alone then
      return pack('<BI7B', 0, now, 255)
    end
    answers[number + 1] = '\255'
  elseif fitting == count then
    if is_alone then
      return pack('<BI7BI7', 0, now, fitting, debt)
    end
    answers[number + 1] = pack('<BI7', fitting, debt)
  else
    if is_alone then
      return pack('<BI7BI7I7', 0, now, fitting, debt, expires)
    end
    answers[number + 1] = pack('<BI7I7', fitting, debt, expires)
  end
end
return table.concat(answers)
