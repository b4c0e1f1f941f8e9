-- The fixed window of one member, unrolled into check_joint_windows.lua. The same step as fixed_window.lua.
--
-- @key_names  key_N
-- @arguments  cost_N, shape_N, grain_N, limit_N, most_N, period_N
-- @numbers    expires_N, count_N
--
-- shape  the eight bytes of the state in front of its numbers, which are only compared
-- most   the units with which the hit still fits: the limit without the reserve

-- @section read
local tick_N = (now - now % grain_N) / grain_N
local window_N, count_N, expires_N, at_N = tick_N - tick_N % period_N, 0, 0, 0
value = call('GET', key_N)
if value then
  if #value ~= 32 then
    return pack('<Bd', REPLY_FALLBACK, now)
  end
  local stored_shape
  expires_N, stored_shape, count_N, at_N = unpack('<dddd', value)
  if
    not (
      stored_shape == shape_N and at_N <= tick_N and count_N >= 0 and count_N % 1 == 0
      and expires_N < 9007199254740992 and expires_N % 1 == 0
    )
  then
    return pack('<Bd', REPLY_FALLBACK, now)
  end
  if now >= expires_N then
    expires_N, count_N = 0, 0
  elseif at_N < window_N then
    count_N = 0
  elseif count_N > limit_N then
    count_N = limit_N
  end
end
if count_N + cost_N > most_N then
  status = REPLY_DENIED
end
-- As expiry() of prelude.lua.
local expires_after_N = (window_N + period_N) * grain_N + 1000
expires_after_N = expires_after_N + ((expires_N > 0 and expires_N or now + 1000) - expires_after_N) % 1000000
if expires_after_N >= 9007199254740992 then
  return pack('<Bd', REPLY_FALLBACK, now)
end

-- @section write
value = pack('<dddd', expires_after_N, shape_N, count_N + cost_N, tick_N)
if expires_after_N == expires_N and at_N * grain_N >= second and flags < 2 then
  call('SET', key_N, value, 'KEEPTTL')
else
  expires_N = expires_after_N
  ttl = flags < 2 and (expires_N - now + (now - expires_N) % 1000) / 1000 or 3600000
  call('SET', key_N, value, 'PX', string.format('%d', ttl))
end
