-- Decides several hits of one cost, each on one bucket, as if they had come one after another.
--
-- KEYS     the values, each key once
-- ARGV[2]  one byte for each key: its number of hits; empty when each has one
--
-- reply    now (microseconds), alone when the deadline had passed. Then for each key: the value that was written, when
--          all its hits are charged; -1 - REPLY_FALLBACK, when it is left to check_one.lua or cannot be read or
--          written, and nothing was done for it; otherwise -1 - n, where n hits fit, the debt before them, expires
--          (microseconds), and the tokens refunded

local pack, unpack = struct.pack, struct.unpack
local question = ARGV[1]
local deadline, price, most, refill, grain, shape, unit, after = unpack('<ddddddd', question)
-- @include bucket_prelude

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
  local expires, debt, refunded, rest, keep_until, is_plain = 0, 0, 0, '', 0, true
  -- @include bucket_step

  local fitting = 0
  if is_plain and debt + price <= most then
    fitting = count
    if writes then
      if count > 1 and debt + count * price > most then
        local left = most - debt
        fitting = (left - left % price) / price
      end
      local owed = debt + fitting * price
      -- @include bucket_value
      if ttl ~= last_ttl then
        last_ttl, ttl_text = ttl, string.format('%d', ttl)
      end
      is_plain = expires < 9007199254740992
        and not call('SET', key, rest == '' and value or value .. rest, 'PX', ttl_text).err
    end
  end

  if not is_plain then
    answers[number + 1] = pack('<d', -1 - REPLY_FALLBACK)
  elseif writes and fitting == count then
    answers[number + 1] = value
  else
    answers[number + 1] = pack('<dddd', -1 - fitting, debt, expires, refunded)
  end
end
return table.concat(answers)
