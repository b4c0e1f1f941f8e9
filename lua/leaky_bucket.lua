-- Leaky bucket: a queue that lets one out at a time.
-- The same step as crates/ratelimit-core/src/algorithm/leaky_bucket.rs and bucket.rs.
--
-- It admits what a token bucket admits, so the step is token_bucket.lua's; the wait for one's turn is
-- derived in Rust from the debt before the hit. Its states carry a code of their own.

local function leaky_bucket_roll(...)
  return token_bucket_roll(...)
end

local function leaky_bucket_state(...)
  return token_bucket_state(...)
end

local function leaky_bucket_left(...)
  return token_bucket_left(...)
end

local function leaky_bucket_refund(...)
  return token_bucket_refund(...)
end
