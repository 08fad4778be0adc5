-- fixed_window.rs for Redis. The registers are the count, and how much of it was refused beyond a full window.

-- The calendar window that holds `now`, among those in the argument. A time before them belongs to
-- the last count, a time after them to the last window: clocks that differ so much deny hits and do
-- not let too many pass.
local function span_at(argument, boundaries, now)
  local start, stop = 0, unpack_numbers('<I7', argument, EDGES)
  for number = 1, boundaries - 1 do
    if now < stop then break end
    start, stop = stop, unpack_numbers('<I7', argument, EDGES + 7 * number)
  end
  return start, stop
end

local function fixed_window(kind, hits, taken_at, now, seen, count, beyond, _, window, requests, burst, refused, _, _, _, _,
    boundaries, argument)
  local start, to_edge
  if boundaries == 0 then
    local elapsed = now % window
    start, to_edge = now - elapsed, window - elapsed
  else
    local stop
    start, stop = span_at(argument, boundaries, now)
    to_edge = stop - now
    -- A calendar ends with time, and then no window begins any more: never answer "at once".
    if to_edge < 1 then to_edge = 1 end
  end

  -- The count of the full window that refused hits.
  local before, full = 0, nil
  if seen >= start then
    before = count
    if beyond > 0 then
      full = count - beyond
      -- Hits that only a lower limit refused no longer count.
      if requests > full then before, full = full, nil end
    end
  end
  local after, allowed = before, true
  if kind == TAKE then
    after = before + hits
    if after > requests then
      allowed = false
      -- By default all of them, without a bound on the debt, which ends with the window.
      if refused ~= BLOCKING then
        after = before + debt(refused, burst, before, hits)
      else
        full = full or before
        if full < requests then full = requests end
      end
      if after > MAX then after = MAX end
    end
  elseif kind == CHARGE then
    after = charged(before, hits)
    if full then full = full + (after - before) end
  elseif kind == REFUND or taken_at >= start then
    after = before - hits
    if after < 0 then after = 0 end
  end

  local remaining = requests - after
  if remaining < 0 then remaining = 0 end
  local retry
  if allowed then
    retry = 0
  elseif hits <= requests then
    retry = to_edge
  end
  beyond = 0
  if full and after > full then beyond = after - full end
  return after, beyond, after ~= before, allowed, before, remaining, to_edge, retry
end
