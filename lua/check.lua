-- Decides one hit on a policy of several limits, all or nothing. The line before this file defines `algorithms`: for
-- each code the functions roll, state and count (which records denied hits, or nil), and the format of its numbers.
--
-- reply   REPLY_ALLOWED or REPLY_DENIED; now (microseconds); expires of each key (microseconds); the numbers of
--         each limit

-- @include read_budgets

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

local charged, writes = all_fit and cost or 0, not writes_nothing
local answer = { struct.pack('<Bd', all_fit and REPLY_ALLOWED or REPLY_DENIED, now) }
-- @include write_budgets
