-- Redis runs Lua 5.1 without the libraries that reach outside of it. `cargo xtask check`
-- passes the names that the files of lua/ share to luacheck.
std = "lua51"
read_globals = {
  "redis", "struct", "KEYS", "ARGV",
  -- The assembler replaces the names of codes by their values; the table is in lua/README.md.
  "REPLY_DENIED", "REPLY_ALLOWED", "REPLY_TOO_LATE", "REPLY_DONE", "REPLY_FALLBACK",
  "REPLY_REPLACED", "MEMBER_FITS", "MEMBER_REPLACED", "TAIL_CODE", "TAIL_LENGTH",
  "SETTLE_REFUND", "SETTLE_CHARGE", "SETTLE_RELEASE", "SETTLE_RENEW", "SETTLE_CATCH_UP",
  "SETTLE_CREDIT",
  "SETTLED_UNCHANGED", "SETTLED_APPLIED", "SETTLED_LEASE_LOST", "JOINT_MUST", "JOINT_ANY", "JOINT_WATCH",
}
not_globals = {
  "arg", "collectgarbage", "debug", "dofile", "getfenv", "io", "load", "loadfile", "loadstring",
  "module", "newproxy", "os", "package", "print", "require", "setfenv",
}
max_line_length = 120

-- The assembler writes a table between the functions and the last file.
for _, name in ipairs({ "check", "settle" }) do
  -- Functions of all algorithms take the same arguments, and some sections assign what others do not read.
  files["lua/" .. name .. ".lua"] = {
    read_globals = { "algorithms" }, max_code_line_length = false, ignore = { "212", "311", "431" },
  }
end
files["lua/reset.lua"] = { max_code_line_length = false, ignore = { "212", "311", "431" } }
-- They are checked as they are assembled, with the lists of all limits in one line. All algorithms have the same arguments.
for _, name in ipairs({ "check_unrolled", "check_joint_windows" }) do
  files["lua/" .. name .. ".lua"] = {
    max_code_line_length = false,
    ignore = { "211/shape_.*", "211/head_.*", "211/rate_.*", "231/is_usual", "311", "421", "431" },
  }
end
