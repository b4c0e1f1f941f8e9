-- Redis runs Lua 5.1 without the libraries that reach outside of it. What the
-- files of lua/ offer each other is told to luacheck by `cargo xtask check`.
std = "lua51"
read_globals = { "redis", "struct", "KEYS", "ARGV" }
not_globals = {
  "arg", "collectgarbage", "debug", "dofile", "getfenv", "io", "load", "loadfile", "loadstring",
  "module", "newproxy", "os", "package", "print", "require", "setfenv",
}
max_line_length = 120

-- The line that the assembler writes between the algorithms and the last file binds these.
files["lua/check_one.lua"] = { read_globals = { "code", "roll", "state", "count", "format" } }
files["lua/check.lua"] = { read_globals = { "algorithms" } }
files["lua/settle.lua"] = { read_globals = { "algorithms" } }
files["lua/check_batch.lua"] = { read_globals = { "algorithms" } }
