-- use: token_bucket
-- leaky_bucket.rs beside this file, for Redis: the token bucket seen from the other side.
local leaky_bucket = token_bucket
