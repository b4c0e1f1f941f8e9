-- Leaky bucket: a queue that is emptied at a constant rate.
-- The same step as crates/ratelimit-core/src/algorithm/leaky_bucket.rs and bucket.rs.
--
-- It admits the same hits as a token bucket, so it uses the step of token_bucket.lua. Rust derives the delay of a hit
-- from the debt before it. Its states have their own code.

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

local function leaky_bucket_credit(...)
  return token_bucket_credit(...)
end
