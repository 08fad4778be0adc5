-- sliding_log.rs for Redis: what the log and the segments share. The first register is the number
-- of hits that the marks hold.

-- How many of these hits the marks can hold besides those that they do.
local function marked(used, hits)
  local spare = MARKED_MAX - used
  if hits > spare then hits = spare end
  if hits < 0 then hits = 0 end
  return hits
end

-- Decides by marks that count for a window from their time. `marked_at` is the time of what is
-- taken or given back.
local function slide(kind, hits, marked_at, now, used, marks, window, requests, burst, refused)
  -- Within the first window since 1970 no mark can be a window old.
  if now >= window and marks ~= '' then
    local dropped
    marks, dropped = drop_until(marks, MARK, now - window)
    used = used - dropped
    if used < 0 then used = 0 end
  end
  local before, changed, allowed = used, false, true
  if kind == TAKE then
    local counted = hits
    if used + hits > requests then
      allowed = false
      counted = marked(used, debt(refused, burst, used, hits))
    end
    if counted > 0 then
      -- Deep in debt the newest mark takes them in, so that marks stay bounded.
      if used >= 2 * burst and marks ~= '' then marked_at = unpack_numbers('<I7', marks, #marks - MARK + 1) end
      marks = add_mark(marks, MARK, marked_at, counted, '')
      used = used + counted
      changed = true
    end
  elseif kind == CHARGE then
    local counted = marked(used, hits)
    if counted > 0 then
      marks = add_mark(marks, MARK, marked_at, counted, '')
      used = used + counted
      changed = true
    end
  elseif marks ~= '' then
    local off
    marks, off = take_off(marks, MARK, hits, kind == GIVE_BACK and marked_at, '')
    used = used - off
    if used < 0 then used = 0 end
    changed = off > 0
  end

  local remaining = requests - used
  if remaining < 0 then remaining = 0 end
  local retry
  if allowed then
    retry = 0
  elseif hits <= requests then
    local too_many = used - (requests - hits)
    if too_many < 0 then too_many = 0 end
    retry = aged_in(marks, MARK, too_many, window, now)
  end
  local reset = newest_ages_in(marks, MARK, window, now)
  return used, 0, changed, allowed, before, remaining, reset, retry, nil, nil, marks
end
