-- concurrency.rs for Redis. The first register is the number of slots held; a mark has its holder.
local function concurrency(kind, hits, taken_at, now, _, held, _, marks, window, requests, _, _, _, _, _, _, _, argument)
  -- Within the first slot time since 1970 no slot can have expired.
  if now >= window and marks ~= '' then
    local dropped
    marks, dropped = drop_until(marks, HELD_MARK, now - window)
    held = held - dropped
    if held < 0 then held = 0 end
  end
  local holder = cut(argument, HOLDER, HOLDER + 7)
  local before, changed, allowed = held, false, true
  if kind == TAKE and hits > 0 then
    allowed = held + hits <= requests
    if allowed then
      marks = add_mark(marks, HELD_MARK, now, hits, holder)
      held = held + hits
      changed = true
    end
  elseif kind == TAKE then
    allowed = held <= requests
    if holder ~= '\0\0\0\0\0\0\0\0' and marks ~= '' then
      local renewed
      marks, renewed = take_off(marks, HELD_MARK, MAX, nil, holder)
      changed = renewed > 0
      if changed then marks = add_mark(marks, HELD_MARK, now, renewed, holder) end
    end
  elseif kind ~= CHARGE and marks ~= '' then
    local off
    marks, off = take_off(marks, HELD_MARK, hits, kind == GIVE_BACK and taken_at, holder)
    held = held - off
    if held < 0 then held = 0 end
    changed = off > 0
  end

  local remaining = requests - held
  if remaining < 0 then remaining = 0 end
  local retry
  if allowed then
    retry = 0
  elseif hits <= requests then
    local too_many = held - (requests - hits)
    if too_many < 0 then too_many = 0 end
    retry = aged_in(marks, HELD_MARK, too_many, window, now)
  end
  local reset = newest_ages_in(marks, HELD_MARK, window, now)
  return held, 0, changed, allowed, before, remaining, reset, retry, nil, nil, marks
end
