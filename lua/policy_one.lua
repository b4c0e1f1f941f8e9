-- Decides a policy of one limit. The line before this file binds `roll` and `state` to the functions of
-- its algorithm, and `count` to the one that remembers denied hits, if it has one.
--
-- answer  whether it fits (1) or not (0); now and expires (microseconds); four numbers of the limit

local code, grain, limit, period, rate = struct.unpack('<BI3I7I7I7', ARGV[1], first_limit)
local value, expires = stored_value()
local stored = state_at(value, 8, code)
local fits, repaired, at, a, b, c, stamps =
  roll(stored, div(now, grain), cost, grain, limit, period, rate)
fits = fits or cost == 0

if not writes_nothing then
  if fits then
    local charged, ends = state(code, cost, grain, period, rate, at, a, b, c, stamps)
    expires = store(framed(charged), ends)
  elseif repaired or (count and rate == 1) then
    if count and rate == 1 then
      a, b, c, stamps = count(stamps, at, cost, limit)
    end
    local kept, ends = state(code, 0, grain, period, rate, at, a, b, c, stamps)
    expires = store(framed(kept), ends)
  end
end

return struct.pack('<BI7I7I7I7I7I7', fits and 1 or 0, now, expires, at, a, b, c)
