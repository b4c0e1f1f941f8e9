-- Redis runs Lua 5.1 without the libraries that reach outside of it. `cargo xtask check`
-- passes the names that the files of lua/ share to luacheck.
std = "lua51"
read_globals = {
  "redis", "struct", "KEYS", "ARGV",
  -- The assembler replaces the names of codes by their values; the table is in lua/README.md.
  "REPLY_DENIED", "REPLY_ALLOWED", "REPLY_TOO_LATE", "REPLY_DONE", "REPLY_FALLBACK",
  "SETTLE_REFUND", "SETTLE_CHARGE", "SETTLE_RELEASE", "SETTLE_RENEW", "SETTLE_CATCH_UP",
  "SETTLE_CREDIT", "SETTLE_RELEASE_OLDEST",
  "SETTLED_UNCHANGED", "SETTLED_APPLIED", "SETTLED_LEASE_LOST", "JOINT_MUST", "JOINT_ANY", "JOINT_WATCH",
}
not_globals = {
  "arg", "collectgarbage", "debug", "dofile", "getfenv", "io", "load", "loadfile", "loadstring",
  "module", "newproxy", "os", "package", "print", "require", "setfenv",
}
max_line_length = 120

-- The assembler writes a line between the algorithms and the last file, which defines these.
files["lua/check_one.lua"] = { read_globals = { "code", "roll", "state", "count", "format" } }
files["lua/check.lua"] = { read_globals = { "algorithms" } }
files["lua/settle.lua"] = { read_globals = { "algorithms" } }
files["lua/check_joint.lua"] = { read_globals = { "algorithms" } }
-- It is checked as it is assembled, with the lists of all limits in one line. Where a limit is a log, every value is long.
files["lua/check_unrolled.lua"] = { max_line_length = false, ignore = { "231/is_long" } }
