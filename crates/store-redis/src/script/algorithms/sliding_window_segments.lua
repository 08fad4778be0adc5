-- use: slide
-- sliding_window_segments.rs for Redis: sliding_log with marks at the starts of their segments.

-- The start of the segment that holds `time`.
local function segment_start(time, window, segments)
  local elapsed = time % window
  local number = multiply_divide(elapsed, segments, window)
  local start, rest = multiply_divide(window, number, segments)
  if rest > 0 then start = start + 1 end
  return time - (elapsed - start)
end

local function sliding_window_segments(kind, hits, taken_at, now, _, used, _, marks, window, requests, burst, refused, _, _, _,
    segments)
  local marked_at = now
  if kind == GIVE_BACK then marked_at = taken_at end
  marked_at = segment_start(marked_at, window, segments)
  return slide(kind, hits, marked_at, now, used, marks, window, requests, burst, refused)
end
