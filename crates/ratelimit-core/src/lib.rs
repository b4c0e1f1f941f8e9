//! Rate limiting with exact, equal answers from memory and from Redis.
