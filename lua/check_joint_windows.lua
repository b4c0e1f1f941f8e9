-- Decides a joint hit whose members all must fit, each on a fixed window of its own and with a cost above 0. It is a
-- fast path for the rules of Envoy's rate limit server, which are fixed windows. Four members take 40 % of the server's
-- instructions in check_joint.lua.
--
-- The assembler unrolls the members into this file as it does limits into check_unrolled.lua: a line `-- @each NAME`
-- becomes the section NAME of joint_window.lua for each member, and a name in capitals its list of all members.
--
-- It takes the same step as fixed_window.lua for the usual values: none, or one that holds a single state, which was
-- written under the same grain and is not ahead of the clock. With any other value nothing is written, and
-- check_joint.lua decides.
--
-- KEYS     the value of each member, in the order of the members
-- ARGV[1]  deadline (microseconds, 2^53 - 1 for none); the numbers of each member, which joint_window.lua lists. Then,
--          where the time is given: 2 and now (microseconds). All are doubles
--
-- reply    REPLY_FALLBACK and now (microseconds); or REPLY_ALLOWED or REPLY_DENIED, now, and for each member expires
--          (microseconds) after the call, and the count before the hit

local KEY_NAMES = unpack(KEYS)
local pack, unpack, call = struct.pack, struct.unpack, redis.call
local argument = ARGV[1]
local deadline, ARGUMENTS, next_number = unpack('<dFORMAT_ARGUMENTS', argument)
local flags, now = 0, 0
if next_number <= #argument then
  flags, now = unpack('<dd', argument, next_number)
end
if flags < 2 then
  now = call('TIME')
  now = now[1] * 1000000 + now[2]
end
if now > deadline then
  return pack('<Bd', REPLY_TOO_LATE, now)
end

local status, second = REPLY_ALLOWED, now - now % 1000000
local value, ttl
-- @each read
if status == REPLY_ALLOWED then
  -- @each write
end
return pack('<BdFORMAT_NUMBERS', status, now, NUMBERS)
