-- Decides a policy of one limit. The line before this file binds `roll` and `state` to the functions of
-- its algorithm, and `count` to the one that remembers denied hits, if it has one.
--
-- answer  whether it fits (1) or not (0); now and expires (microseconds); four numbers of the limit

local _, code, grain, limit, period, rate, reserve =
  struct.unpack('<BBI3I7I7I7I7', ARGV[1], first_limit)
local key = KEYS[1]
local value, expires = stored_value(key)
local stored = state_at(value, 8, code)
local fits, repaired, at, a, b, c, stamps =
  roll(stored, div(now, grain), cost + reserve, grain, limit, period, rate, reserve)
fits = fits or cost == 0

if not writes_nothing then
  if fits then
    local charged, ends = state(code, cost, grain, period, rate, at, a, b, c, stamps)
    expires = store(key, framed(charged), expiry(ends))
  elseif repaired or counts_denied(count, rate, fits) then
    if counts_denied(count, rate, fits) then
      a, b, c, stamps = count(stamps, at, a, b, c, cost, reserve, limit, period, rate)
    end
    local kept, ends = state(code, 0, grain, period, rate, at, a, b, c, stamps)
    expires = store(key, framed(kept), expiry(ends))
  end
end

return struct.pack('<BI7I7I7I7I7I7', fits and 1 or 0, now, expires, at, a, b, c)
