-- Marks: what a bucket remembers hit by hit, oldest first (see algorithm/marks.rs).
--
-- They stay the string that they are in Redis: a decision reads and cuts the few that it needs, and
-- does not build a table of ten thousand. A mark is its time in 7 bytes and its hits in 5, followed
-- by 8 bytes of its holder if the algorithm has holders. `width` is that length, `holder` the 8
-- bytes or the empty string.

-- Drops marks as old as `till` or older. Returns the rest and how many hits were dropped.
local function drop_until(marks, width, till)
  local at, hits
  local place, dropped, length = 1, 0, #marks
  while place <= length do
    at, hits = unpack_numbers('<I7I5', marks, place)
    if at > till then break end
    dropped = dropped + hits
    place = place + width
  end
  if place > 1 then marks = cut(marks, place) end
  return marks, dropped
end

-- Inserts a mark in order. Marks of one holder with one time are merged.
local function add_mark(marks, width, at, hits, holder)
  local place = #marks + 1
  -- From the newest: only a clock that was set back puts a mark anywhere but at the end.
  while place > 1 and unpack_numbers('<I7', marks, place - width) > at do
    place = place - width
  end
  local same = place
  while same > 1 do
    local its_at, its_hits = unpack_numbers('<I7I5', marks, same - width)
    if its_at ~= at then break end
    if cut(marks, same - width + 12, same - 1) == holder then
      local mark = pack('<I7I5', at, its_hits + hits)
      return cut(marks, 1, same - width - 1) .. mark .. cut(marks, same - width + 12)
    end
    same = same - width
  end
  local mark = pack('<I7I5', at, hits) .. holder
  if place > #marks then return marks .. mark end
  return cut(marks, 1, place - 1) .. mark .. cut(marks, place)
end

-- Takes up to `hits` off this holder's marks, of that time if given, oldest first. Returns the rest
-- and how many hits were taken off.
local function take_off(marks, width, hits, only_at, holder)
  -- Marks hold fewer, and differences of larger numbers are not exact.
  if hits > MAX then hits = MAX end
  local length, place = #marks, 1
  if only_at then
    -- The first mark that is not older.
    local below, above = 0, length / width
    while below < above do
      local middle = (below + above - (below + above) % 2) / 2
      if unpack_numbers('<I7', marks, middle * width + 1) < only_at then
        below = middle + 1
      else
        above = middle
      end
    end
    place = below * width + 1
  end
  local left, from, pieces = hits, 1, {}
  while left > 0 and place <= length do
    if holder ~= '' then
      -- Goes to the next mark that contains these bytes, in place of reading each.
      local found = find(marks, holder, place + 12, true)
      if not found then break end
      place = found - (found - 1) % width
    end
    local at, its_hits = unpack_numbers('<I7I5', marks, place)
    if only_at and at ~= only_at then break end
    if cut(marks, place + 12, place + width - 1) == holder then
      if from < place then pieces[#pieces + 1] = cut(marks, from, place - 1) end
      from = place + width
      if its_hits > left then
        pieces[#pieces + 1] = pack('<I7I5', at, its_hits - left) .. holder
        left = 0
      else
        left = left - its_hits
      end
    end
    place = place + width
  end
  if from == 1 then return marks, 0 end
  pieces[#pieces + 1] = cut(marks, from)
  return concat(pieces), hits - left
end

-- How long until the mark at this place has reached this age.
local function ages_in(marks, place, age, now)
  local gone = now - unpack_numbers('<I7', marks, place)
  if gone <= 0 then return age end
  if gone >= age then return 0 end
  return age - gone
end

-- How long until the newest mark has; 0 without marks.
local function newest_ages_in(marks, width, age, now)
  if marks == '' then return 0 end
  return ages_in(marks, #marks - width + 1, age, now)
end

-- How long until this many hits, oldest first, have; none when there are fewer.
local function aged_in(marks, width, hits, age, now)
  local sum = 0
  for place = 1, #marks, width do
    local _, its_hits = unpack_numbers('<I7I5', marks, place)
    sum = sum + its_hits
    if sum >= hits then return ages_in(marks, place, age, now) end
  end
  return nil
end

-- The second clock law moves every mark.
local function marks_brought_back(marks, width, by)
  local pieces = {}
  for place = 1, #marks, width do
    local at = unpack_numbers('<I7', marks, place)
    if at < by then at = by end
    pieces[#pieces + 1] = pack('<I7', at - by) .. cut(marks, place + 7, place + width - 1)
  end
  return concat(pieces)
end
