-- Decides a policy of several limits, all or nothing. The line before this file binds `algorithms`: for
-- each code the functions roll and state, and the one that remembers denied hits, if it has one.
--
-- answer  whether all fit (1) or not (0); now and expires (microseconds); four numbers for each limit

local value, expires = stored_value()
local limits = {}
local all_fit, any_kept = true, false
local next_limit, next_state = first_limit, 8
while next_limit <= #ARGV[1] do
  local code, grain, limit, period, rate, stored, raw
  code, grain, limit, period, rate, next_limit =
    struct.unpack('<BI3I7I7I7', ARGV[1], next_limit)
  stored, next_state, raw = state_at(value, next_state, code)
  local fits, repaired, at, a, b, c, stamps =
    algorithms[code][1](stored, div(now, grain), cost, grain, limit, period, rate)
  local counted = algorithms[code][3] and rate == 1
  all_fit = all_fit and (fits or cost == 0)
  any_kept = any_kept or repaired or counted
  limits[#limits + 1] = {
    code = code, grain = grain, limit = limit, period = period, rate = rate, raw = raw,
    repaired = repaired, counted = counted, at = at, a = a, b = b, c = c, stamps = stamps,
  }
end

if not writes_nothing and (all_fit or any_kept) then
  local states, last_end = {}, 0
  for place, l in ipairs(limits) do
    if l.counted and not all_fit then
      l.a, l.b, l.c, l.stamps = algorithms[l.code][3](l.stamps, l.at, cost, l.limit)
    end
    local charged = all_fit and cost or 0
    local written, ends =
      algorithms[l.code][2](l.code, charged, l.grain, l.period, l.rate, l.at, l.a, l.b, l.c, l.stamps)
    if not (all_fit or l.repaired or l.counted) then
      written = l.raw
    end
    states[place] = framed(written)
    last_end = math.max(last_end, ends)
  end
  expires = store(table.concat(states), last_end)
end

local answer = { struct.pack('<BI7I7', all_fit and 1 or 0, now, expires) }
for place, l in ipairs(limits) do
  answer[place + 1] = struct.pack('<I7I7I7I7', l.at, l.a, l.b, l.c)
end
return table.concat(answer)
