-- use: token_bucket
-- leaky_bucket.rs for Redis: the token bucket seen from the other side.
local leaky_bucket = token_bucket
