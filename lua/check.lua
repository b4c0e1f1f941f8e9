-- Decides the members of a joint hit, all or nothing. A single hit is the case of one member. The line before this file
-- defines `algorithms`: for each code the functions roll, state and count (which records denied hits, or nil), and the
-- formats of its numbers, and of an expiry and its numbers. The same steps as crates/ratelimit-core/src/store/memory/joint.rs.
--
-- ARGV[1]  as in prelude.lua up to the cost, which is not used; then for each member, in the order in which they are
--          decided: role (JOINT_MUST, JOINT_ANY or JOINT_WATCH); mode (1: read only, 2: another key denied the hit,
--          which is only recorded here); cost; the number of its limits; then for each limit the number of its key
--          (from 1, 2 bytes), its algorithm's code, grain (microseconds), limit (its ceiling), period (ticks of the
--          grain), rate (refill per tick, 1 for a log that counts denials, or the parameter of a penalty box) and
--          reserve (units that must stay free beside the cost)
--
-- reply    REPLY_ALLOWED or REPLY_DENIED; now (microseconds); then for each member MEMBER_FITS, MEMBER_REPLACED (a state
--          of another algorithm), both or 0; then for each of its keys expires (microseconds) and the numbers of each limit

-- Each value as it would be after the members decided so far, or false where there is none; and the expiry of those
-- that have changed. The lists begin with space for four members: a list that grows costs as much as a GET.
local values, expiries = { nil, nil, nil, nil }, { nil, nil, nil, nil }
local has_several_keys, slots = #KEYS > 1, ARGV[2]

-- Decides a limit of a member and those behind it, of which `left` remain, this one included. The limit is at `place`
-- of the argument and its frame at `from` of the value, behind `own` frames of the same key. `fits` and `rewrites`
-- say whether all limits before it fit, and whether one of the same key is to be written although the hit is denied.
-- `spent` and `slot` are those of the hit; it is written if it fits and `is_charged`, or is denied and `is_recorded`.
--
-- Each limit waits for those behind it, and then puts its frame in front of theirs, so no limit needs a table. Values
-- that each script has to make once are arguments: a variable that a function shares costs the server more.
--
-- Returns the place behind the last limit, and whether all fit; the reply; whether the charge replaced a state of another
-- algorithm; then the number of the key, whether its value is rewritten although the hit is denied, and what it is
-- rewritten with: the frames and their expiry.
local function decide(place, left, key, from, own, fits, rewrites, spent, slot, is_charged, is_recorded)
  local number, code, grain, limit, period, rate, reserve, behind_limit = unpack('<I2BI3dddd', argument, place)
  local is_first = number ~= key
  if is_first then
    from, own, rewrites = 9, 0, false
  end
  local value, expires, behind, start, stored_head, is_other = values[number], 0, from, nil, 0, false
  if value then
    expires, place = unpack('<d', value), from
    -- @include frame
  end
  local functions = algorithms[code]
  local limit_fits, repaired, at, a, b, c, kept = functions[1](
    value, start, behind - 1, (now - now % grain) / grain, spent + reserve, grain, limit, period, rate, reserve, slot)
  if has_several_keys then
    -- Rust rejects a reply with other numbers, and then no other key may have been charged.
    local d, e = b or 0, c or 0
    if not (
      expires >= 0 and at >= 0 and a >= 0 and d >= 0 and e >= 0
      and expires < 9007199254740992 and at < 9007199254740992 and a < 9007199254740992
      and d < 9007199254740992 and e < 9007199254740992
      and expires % 1 == 0 and at % 1 == 0 and a % 1 == 0 and d % 1 == 0 and e % 1 == 0)
    then
      error('corrupt rate limit state')
    end
  end
  -- A log with rate 1 counts denied hits, and a penalty box unless it blocks already.
  local counted = functions[3] and (rate == 1 or (rate > 1 and limit_fits))
  fits = fits and (limit_fits or spent == 0)
  rewrites = rewrites or repaired or counted

  local reply, has_replaced, frames, ends_at = '', false, nil, 0
  if left > 1 then
    local next_key, next_rewrites
    behind_limit, fits, reply, has_replaced, next_key, next_rewrites, frames, ends_at = decide(
      behind_limit, left - 1, number, behind, own + 1, fits, rewrites, spent, slot, is_charged, is_recorded)
    if next_key == number then
      rewrites = next_rewrites
    else
      frames = nil
    end
  end
  if fits and is_charged or not fits and rewrites and is_recorded then
    if not frames then
      frames, ends_at = '', 0
      if value and behind <= #value then
        frames, ends_at = rest_of(value, behind, expires, own + 1)
        if not frames then
          error('corrupt rate limit state')
        end
      end
    end
    if not fits and counted then
      a, b, c, kept = functions[3](kept, at, a, b, c, spent, reserve, limit, period, rate)
    end
    local frame, ends, keeps_expiry =
      functions[2](code, fits and spent or 0, grain, period, rate, at, a, b, c, kept)
    if fits or repaired or counted then
      has_replaced = has_replaced or is_other
    else
      frame = behind > from and value:sub(from, behind - 1) or '\0\0\0\0'
    end
    frames, ends = frame .. frames, expiry(ends, expires)
    ends_at = ends > ends_at and ends or ends_at
    ends_at = keeps_expiry and expires > ends_at and expires or ends_at
    if is_first then
      if not (ends_at < 9007199254740992 and ends_at % 1 == 0) then
        error('corrupt rate limit state')
      end
      values[number], expiries[number], expires = pack('<d', ends_at) .. frames, ends_at, ends_at
    end
  end
  local numbers = is_first and pack(functions[5], expires, at, a, b, c) or pack(functions[4], at, a, b, c)
  return behind_limit, fits, numbers .. reply, has_replaced, number, rewrites, frames, ends_at
end

local replies, passes = { nil, nil, nil, nil }, nil
for round = 1, 2 do
  for number = 1, #KEYS do
    local value = redis.call('GET', KEYS[number])
    values[number] = value and now < unpack('<d', value) and value
    expiries[number] = nil
  end
  local must_fit, has_any, any_fits, has_charged = true, false, false, false
  local place, member = first_limit, 0
  while place <= #argument do
    member = member + 1
    local role, mode, spent, count, fits, reply, has_replaced
    role, mode, spent, count, place = unpack('<BBdB', argument, place)
    local slot = slots and (#slots == 8 and slots or slots:sub(8 * member - 7, 8 * member))
    place, fits, reply, has_replaced = decide(
      place, count, 0, 9, 0, mode ~= 2, false, spent, slot, mode == 0 and round == 1, mode ~= 1)
    has_charged = has_charged or fits and mode == 0
    -- In the second round, a member that fits alone keeps its denial behind the others.
    if round == 1 or not fits or replies[member]:byte() % 2 == MEMBER_FITS then
      replies[member] = pack('B', (fits and MEMBER_FITS or 0) + (has_replaced and MEMBER_REPLACED or 0)) .. reply
    end
    if role == JOINT_MUST then
      must_fit = must_fit and fits
    elseif role == JOINT_ANY then
      has_any, any_fits = true, any_fits or fits
    end
  end
  passes = round == 1 and must_fit and (any_fits or not has_any)
  if passes or not has_charged then
    break
  end
  -- Begin again without charges. Only limits that count denied hits record those of their own policy.
end
-- All that can fail comes before the first write: an error does not undo it.
for number = 1, #KEYS do
  local expires = expiries[number]
  if expires then
    local ttl = time_is_given and 3600000 or math.max((expires - now + (now - expires) % 1000) / 1000, 1)
    -- A string: Redis converts a Lua number with 17 digits, which takes far longer.
    redis.call('SET', KEYS[number], values[number], 'PX', string.format('%d', ttl))
  end
end
return pack('<Bd', passes and REPLY_ALLOWED or REPLY_DENIED, now)
  .. (replies[2] and table.concat(replies) or replies[1])
