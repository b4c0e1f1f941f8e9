-- Concurrency: at most `limit` slots at once, each held on a lease.
-- The same step as crates/ratelimit-core/src/algorithm/concurrency.rs.
--
-- state   code; grain (1); lease (microseconds), the longest; for each slot its id (8 bytes) and its
--         end (microseconds), in the order in which they end
-- args    limit; period, the lease (microseconds); reserve; the id of the hit's slot
-- reply   at; twice the number of held slots, plus one if the hit's own is among them; the end that
--         must pass before the hit fits; the last end

-- @section functions
local function concurrency_end(slots, number)
  return (unpack('<I7', slots, 15 * number - 6))
end

-- How many slots end at `moment` or before.
local function concurrency_ended(slots, moment)
  local first, last = 1, #slots / 15 + 1
  while first < last do
    local middle = div(first + last, 2)
    if concurrency_end(slots, middle) <= moment then
      first = middle + 1
    else
      last = middle
    end
  end
  return first - 1
end

-- The position of the slot with that id, if it is held.
local function concurrency_find(slots, slot)
  local from = 1
  while true do
    local at = slots:find(slot, from, true)
    if not at then
      return nil
    end
    if (at - 1) % 15 == 0 then
      return (at - 1) / 15 + 1
    end
    from = at + 1
  end
end

local function concurrency_without(slots, place)
  return slots:sub(1, 15 * place - 15) .. slots:sub(15 * place + 1)
end

local function concurrency_insert(slots, slot, ends)
  local cut = 15 * concurrency_ended(slots, ends)
  return slots:sub(1, cut) .. slot .. pack('<I7', ends) .. slots:sub(cut + 1)
end

local function concurrency_read(value, from, to)
  local _, _, lease, first = unpack('<BI3d', value, from)
  local slots = value:sub(first, to)
  if #slots % 15 ~= 0 then
    error('corrupt rate limit state')
  end
  return lease, slots
end

local function concurrency_roll(value, from, to, at, _, _, limit, _, _, reserve, slot)
  local lease, slots, repaired = 0, '', false
  if from then
    lease, slots = concurrency_read(value, from, to)
  end
  local count = #slots / 15
  if count > 0 and concurrency_end(slots, count) > at + 2 * lease then
    repaired = true
    local latest, cut = at + lease, {}
    for number = 1, count do
      local ends = math.min(concurrency_end(slots, number), latest)
      cut[number] = slots:sub(15 * number - 14, 15 * number - 7) .. pack('<I7', ends)
    end
    slots = table.concat(cut)
  end
  slots = slots:sub(15 * concurrency_ended(slots, at) + 1)
  local live = #slots / 15
  local held = concurrency_find(slots, slot)
  local over = math.max(live + 1 + reserve - limit, 1)
  local pivot = over <= live and concurrency_end(slots, over) or at
  local last_end = live > 0 and concurrency_end(slots, live) or at
  local fits = held ~= nil or live + 1 + reserve <= limit
  local kept = { lease = lease, slots = slots, slot = slot }
  return fits, repaired, at, 2 * live + (held and 1 or 0), pivot, last_end, kept
end

local function concurrency_state(code, charged, grain, period, _, at, _, _, last_end, kept)
  local lease, slots, slot = kept.lease, kept.slots, kept.slot
  if charged > 0 then
    lease = #slots > 0 and math.max(period, lease) or period
    local ends = at + period
    local held = concurrency_find(slots, slot)
    if held then
      ends = math.max(ends, concurrency_end(slots, held))
      slots = concurrency_without(slots, held)
    end
    slots = concurrency_insert(slots, slot, ends)
    last_end = math.max(last_end, ends)
  end
  return framed(pack('<BI3d', code, grain, lease) .. slots), last_end
end

-- @section settle
local function concurrency_release(stored, slot)
  local lease, slots = concurrency_read(stored, 1, #stored)
  local held = concurrency_find(slots, slot)
  if not held then
    return nil
  end
  local code, grain = unpack('<BI3', stored)
  return framed(pack('<BI3d', code, grain, lease) .. concurrency_without(slots, held))
end

-- Extends a slot to a whole lease from now. Returns whether it is held, the new state and its end.
local function concurrency_renew(stored, at, period, slot)
  local lease, slots = concurrency_read(stored, 1, #stored)
  local held = concurrency_find(slots, slot)
  if not held or concurrency_end(slots, held) <= at then
    return false
  end
  local ends = at + period
  if ends <= concurrency_end(slots, held) then
    return true
  end
  slots = concurrency_insert(concurrency_without(slots, held), slot, ends)
  local code, grain = unpack('<BI3', stored)
  return true, framed(pack('<BI3d', code, grain, math.max(lease, period)) .. slots), ends
end
