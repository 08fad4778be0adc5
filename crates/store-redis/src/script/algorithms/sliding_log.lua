-- use: slide
-- sliding_log.rs for Redis.
local function sliding_log(kind, hits, taken_at, now, _, used, _, marks, window, requests, burst, refused)
  local marked_at = now
  if kind == GIVE_BACK then marked_at = taken_at end
  return slide(kind, hits, marked_at, now, used, marks, window, requests, burst, refused)
end
