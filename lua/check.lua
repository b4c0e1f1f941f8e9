-- Decides one hit on a policy of several limits, all or nothing. The line before this file defines `algorithms`: for
-- each code the functions roll, state and count (which records denied hits, or nil), and the format of its numbers.
--
-- reply   REPLY_ALLOWED or REPLY_DENIED; now (microseconds); expires of each key (microseconds); the numbers of
--         each limit

local budgets = {}
for number, key in ipairs(KEYS) do
  local value, expires = stored_value(key)
  budgets[number] = {
    key = key, value = value, expires = expires, next_state = 9, states = {}, expires_after = 0, is_written = false,
  }
end

local limits = {}
local all_fit = not is_denied
local next_limit = first_limit
while next_limit <= #ARGV[1] do
  local number, code, grain, limit, period, rate, reserve, stored, raw
  number, code, grain, limit, period, rate, reserve, next_limit =
    struct.unpack('<BBI3dddd', ARGV[1], next_limit)
  local budget = budgets[number + 1]
  stored, budget.next_state, raw = state_at(budget.value, budget.next_state, code)
  local fits, repaired, at, a, b, c, stamps =
    algorithms[code][1](
      stored, stored and 1, #raw, div(now, grain), cost + reserve, grain, limit, period, rate, reserve)
  if #KEYS > 1 then
    -- Rust rejects a reply with other numbers, and then no other key may have been charged.
    for _, number_of_reply in ipairs({ at, a, b or 0, c or 0 }) do
      if not (number_of_reply >= 0 and number_of_reply < 9007199254740992 and number_of_reply % 1 == 0) then
        error('corrupt rate limit state')
      end
    end
  end
  local counted = counts_denied(algorithms[code][3], rate, fits)
  all_fit = all_fit and (fits or cost == 0)
  budget.is_written = budget.is_written or repaired or counted
  limits[#limits + 1] = {
    budget = budget, code = code, grain = grain, limit = limit, period = period, rate = rate,
    reserve = reserve, raw = raw, repaired = repaired, counted = counted, at = at, a = a, b = b, c = c,
    stamps = stamps,
  }
end

if not writes_nothing then
  for _, l in ipairs(limits) do
    local budget = l.budget
    if all_fit or budget.is_written then
      if l.counted and not all_fit then
        l.a, l.b, l.c, l.stamps =
          algorithms[l.code][3](l.stamps, l.at, l.a, l.b, l.c, cost, l.reserve, l.limit, l.period, l.rate)
      end
      local charged = all_fit and cost or 0
      local written, ends, keeps_expiry =
        algorithms[l.code][2](l.code, charged, l.grain, l.period, l.rate, l.at, l.a, l.b, l.c, l.stamps)
      if not (all_fit or l.repaired or l.counted) then
        written = l.raw
      end
      budget.states[#budget.states + 1] = framed(written)
      budget.expires_after = math.max(budget.expires_after, expiry(ends), keeps_expiry and budget.expires or 0)
    end
  end
  -- All that can fail comes before the first write: an error does not undo it.
  for _, budget in ipairs(budgets) do
    if all_fit or budget.is_written then
      local rest, keep_until = rest_of(budget.value, budget.next_state, budget.expires, #budget.states)
      budget.written = table.concat(budget.states) .. rest
      budget.expires = math.max(budget.expires_after, keep_until)
      local is_exact = budget.expires < 9007199254740992 and budget.expires % 1 == 0
      if not is_exact then
        error('corrupt rate limit state')
      end
    end
  end
  for _, budget in ipairs(budgets) do
    if budget.written then
      store(budget.key, budget.written, budget.expires)
    end
  end
end

local answer = { struct.pack('<Bd', all_fit and REPLY_ALLOWED or REPLY_DENIED, now) }
for _, budget in ipairs(budgets) do
  answer[#answer + 1] = struct.pack('<d', budget.expires)
end
for _, l in ipairs(limits) do
  answer[#answer + 1] = struct.pack(algorithms[l.code][4], l.at, l.a, l.b, l.c)
end
return table.concat(answer)
