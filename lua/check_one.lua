-- Decides one hit on a policy of one limit. The line before this file defines `code` of its algorithm, its functions
-- `roll`, `state` and `count` (which records denied hits, or nil), and `format` of the reply.
--
-- reply   REPLY_ALLOWED or REPLY_DENIED; now and expires (microseconds); the numbers of the limit

local grain, limit, period, rate, reserve = struct.unpack('<xxI3dddd', ARGV[1], first_limit)
local key = KEYS[1]
local value = redis.call('GET', key)
local expires, from, to = 0, nil, 0
local rest, keep_until = '', 0
if value then
  local length, start
  expires, length, start = struct.unpack('<dI4', value)
  to = start + length - 1
  if to > #value then
    error('corrupt rate limit state')
  end
  if now >= expires then
    expires = 0
  else
    local stored_code = length > 0 and value:byte(start)
    if stored_code == code then
      from = start
    end
    local is_tail = stored_code == TAIL_CODE and length == TAIL_LENGTH
    if is_tail or to < #value then
      rest, keep_until = rest_of(value, is_tail and 9 or to + 1, expires, 1)
    end
  end
end

local fits, repaired, at, a, b, c, stamps =
  roll(value, from, to, (now - now % grain) / grain, cost + reserve, grain, limit, period, rate, reserve)
fits = fits or cost == 0
local passes = fits and not is_denied
local is_counted = not passes and counts_denied(count, rate, fits)

if not writes_nothing and (passes or repaired or is_counted) then
  if is_counted then
    a, b, c, stamps = count(stamps, at, a, b, c, cost, reserve, limit, period, rate)
  end
  local written, ends, keeps_expiry =
    state(code, passes and cost or 0, grain, period, rate, at, a, b, c, stamps)
  expires = math.max(expiry(ends, expires), keep_until, keeps_expiry and expires or 0)
  store(key, struct.pack('<I4', #written) .. written .. rest, expires)
end

return struct.pack(format, passes and REPLY_ALLOWED or REPLY_DENIED, now, expires, at, a, b, c)
