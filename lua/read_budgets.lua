-- Fragment: reads the value of each key. check.lua includes it as text.
--
-- sets     budgets, one for each of KEYS: its value and expires (microseconds), and what is to be written
local budgets = {}
for number, key in ipairs(KEYS) do
  local value, expires = stored_value(key)
  budgets[number] = {
    key = key, value = value, expires = expires, next_state = 9, states = {}, expires_after = 0, is_written = false,
  }
end
