-- Forgets what keys have spent under a policy. A tail stays behind until the value would have expired, so that
-- receipts from before the reset give nothing back.
--
-- KEYS     the values
-- ARGV[1]  as in prelude.lua, without a deadline and without limits
--
-- reply    REPLY_DONE; now (microseconds)

for _, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  local expires = type(value) == 'string' and #value >= 8 and unpack('<d', value) or 0
  -- A value that cannot be read is deleted.
  if expires > now and expires < 9007199254740992 then
    store(key, pack('<I4BddB', TAIL_LENGTH, TAIL_CODE, expires, now, 0), expires)
  elseif value then
    redis.call('DEL', key)
  end
end

return pack('<Bd', REPLY_DONE, now)
