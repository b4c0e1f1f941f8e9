-- Fragment: writes what a hit charged, and replies. check.lua includes it as text.
--
-- takes    budgets and limits; all_fit; charged (units); writes, whether anything may be written; answer, a table with
--          the begin of the reply
if writes then
  for _, l in ipairs(limits) do
    local budget = l.budget
    if all_fit or budget.is_written then
      if l.counted and not all_fit then
        l.a, l.b, l.c, l.stamps =
          algorithms[l.code][3](l.stamps, l.at, l.a, l.b, l.c, cost, l.reserve, l.limit, l.period, l.rate)
      end
      local written, ends, keeps_expiry =
        algorithms[l.code][2](l.code, charged, l.grain, l.period, l.rate, l.at, l.a, l.b, l.c, l.stamps)
      if not (all_fit or l.repaired or l.counted) then
        written = l.raw
      end
      budget.states[#budget.states + 1] = framed(written)
      budget.expires_after =
        math.max(budget.expires_after, expiry(ends, budget.expires), keeps_expiry and budget.expires or 0)
    end
  end
  -- All that can fail comes before the first write: an error does not undo it.
  for _, budget in ipairs(budgets) do
    if all_fit or budget.is_written then
      local rest, keep_until = rest_of(budget.value, budget.next_state, budget.expires, #budget.states)
      budget.written = table.concat(budget.states) .. rest
      budget.expires_after = math.max(budget.expires_after, keep_until)
      local is_exact = budget.expires_after < 9007199254740992 and budget.expires_after % 1 == 0
      if not is_exact then
        error('corrupt rate limit state')
      end
    end
  end
  for _, budget in ipairs(budgets) do
    if budget.written then
      store(budget.key, budget.written, budget.expires_after)
      budget.expires = budget.expires_after
    end
  end
end

for _, budget in ipairs(budgets) do
  answer[#answer + 1] = struct.pack('<d', budget.expires)
end
for _, l in ipairs(limits) do
  answer[#answer + 1] = struct.pack(algorithms[l.code][4], l.at, l.a, l.b, l.c)
end
return table.concat(answer)
