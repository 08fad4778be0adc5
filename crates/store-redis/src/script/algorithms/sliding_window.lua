-- sliding_window.rs for Redis. The registers are the present window's count and the previous one's.
--
-- What Rust counts in 1/window of a hit, in 128 bits, is two numbers here: whole hits, and parts of
-- which a window makes one.

-- How far into a window the previous window's count weighs no more than `spare` hits.
local function weight_fits_at(count, spare, window)
  if spare >= count then return 0 end
  return window - multiply_divide(window, spare, count)
end

local function sliding_window(kind, hits, taken_at, now, seen, present, previous, _, window, requests, burst, refused)
  local elapsed = now % window
  local start, to_edge = now - elapsed, window - elapsed
  if seen < start then
    if seen >= start - window then
      previous, present = present, 0
    else
      previous, present = 0, 0
    end
  end
  local weighs, parts = multiply_divide(to_edge, previous, window)
  local used = present + weighs
  if parts > 0 then used = used + 1 end

  local was_present, was_previous, allowed = present, previous, true
  if kind == TAKE then
    if used + hits <= requests then
      present = present + hits
    else
      allowed = false
      present = present + debt(refused, burst, used, hits)
    end
    if present > MAX then present = MAX end
  elseif kind == CHARGE then
    present = charged(present, hits)
  elseif kind == REFUND then
    -- Hits of the present window first: they weigh most.
    if hits > present then
      previous = previous - (hits - present)
      present = 0
      if previous < 0 then previous = 0 end
    else
      present = present - hits
    end
  else
    local ago = now - taken_at
    if ago <= elapsed then
      present = present - hits
      if present < 0 then present = 0 end
    elseif ago - elapsed <= window then
      previous = previous - hits
      if previous < 0 then previous = 0 end
    end
  end

  if previous ~= was_previous then weighs, parts = multiply_divide(to_edge, previous, window) end
  local remaining = requests - present - weighs
  if parts > 0 then remaining = remaining - 1 end
  if remaining < 0 then remaining = 0 end
  local reset = 0
  if present > 0 then
    reset = to_edge + window
  elseif previous > 0 then
    reset = to_edge
  end
  local retry
  if allowed then
    retry = 0
  elseif hits <= requests then
    local spare = requests - hits
    local at = window
    -- In the present window, the previous count's weight must fall until it fits beside the present
    -- count.
    if spare >= present then at = weight_fits_at(previous, spare - present, window) end
    if at < window then
      retry = at - elapsed
      if retry < 0 then retry = 0 end
    else
      -- In the next window, the present count's weight must fall until it fits.
      retry = to_edge + weight_fits_at(present, spare, window)
    end
  end
  if used > MAX then used = MAX end
  local changed = present ~= was_present or previous ~= was_previous
  return present, previous, changed, allowed, used, remaining, reset, retry
end
