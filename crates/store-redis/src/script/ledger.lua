-- The reservations of a bucket (see algorithm/ledger.rs and algorithm/settle.rs).
--
-- Four keys follow the bucket's name. `:ids` is a hash: by id, the records of that id, oldest first,
-- each RECORD bytes: its kind, hits, true amount, time, until when, number. Its field `h` holds how
-- far the ledger's times are ahead of the bucket's (the second clock law moves the bucket alone), and
-- the next number. `:r`, `:c` and `:x` are sorted sets by the time at which records end: open ones
-- that give hits back, open ones that stay charged, and settled or refused ones. All four expire
-- with the bucket.
--
-- Each set also has a member that never ends: a set without members ceases to exist, and a node of a
-- cluster cannot create a key of a slot that it gives away. So the keys of a ledger begin and end
-- together.

-- The kinds of records.
local STAYS, GOES_BACK, SETTLED, REFUSED_BEFORE = 0, 1, 2, 3
local SETS = { [0] = ':c', ':r', ':x', ':x' }

local function text(whole)
  return ('%.0f'):format(whole)
end

-- The set and the member of a record. Records that end at the same time are in the order of ids.
local function ordered(ledger, id, record)
  return ledger.key .. SETS[record.kind], id:reverse() .. pack('>I7', record.number)
end

local function open_ledger(key, exists)
  local ledger = { key = key, ahead = 0, following = 0 }
  local head = exists and call('HGET', key .. ':ids', 'h')
  ledger.is_new = not head
  if head then ledger.ahead, ledger.following = unpack_numbers('<I7I7', head) end
  return ledger
end

local function save_head(ledger)
  if ledger.is_new then
    for _, set in ipairs({ ':r', ':c', ':x' }) do call('ZADD', ledger.key .. set, text(MAX), '') end
  end
  call('HSET', ledger.key .. ':ids', 'h', pack('<I7I7', ledger.ahead, ledger.following))
end

-- The records of an id, those that ended included.
local function all_records_of(ledger, id)
  local records = {}
  local packed = call('HGET', ledger.key .. ':ids', id)
  if not packed then return records end
  for place = 1, #packed, RECORD do
    local record = {}
    record.kind, record.hits, record.committed, record.taken_at, record.till, record.number =
      unpack_numbers('<BI7I7I7I7I7', packed, place)
    records[#records + 1] = record
  end
  return records
end

-- The records of an id. One that ended counts no more, and is not written again.
local function records_of(ledger, id, at)
  local records = {}
  for _, record in ipairs(all_records_of(ledger, id)) do
    if record.till > at + ledger.ahead then records[#records + 1] = record end
  end
  return records
end

local function save_records(ledger, id, records)
  local packed = {}
  for place, record in ipairs(records) do
    packed[place] =
      pack('<BI7I7I7I7I7', record.kind, record.hits, record.committed, record.taken_at, record.till, record.number)
  end
  if #packed == 0 then
    call('HDEL', ledger.key .. ':ids', id)
  else
    call('HSET', ledger.key .. ':ids', id, concat(packed))
  end
end

local function add_record(ledger, id, records, record)
  record.number = ledger.following
  ledger.following = ledger.following + 1
  records[#records + 1] = record
  save_records(ledger, id, records)
  local set, member = ordered(ledger, id, record)
  call('ZADD', set, text(record.till), member)
end

-- Changes the kind or the end of a record.
local function move_record(ledger, id, records, record, kind, till)
  local set, member = ordered(ledger, id, record)
  call('ZREM', set, member)
  record.kind, record.till = kind, till
  set, member = ordered(ledger, id, record)
  call('ZADD', set, text(till), member)
  save_records(ledger, id, records)
end

-- Removes from the hash the record of a member that its set has lost. Returns it.
local function forget_member(ledger, member)
  local id, number = cut(member, 1, 8):reverse(), unpack_numbers('>I7', member, 9)
  local packed = call('HGET', ledger.key .. ':ids', id) or ''
  for place = 1, #packed, RECORD do
    local _, hits, _, taken_at, _, its = unpack_numbers('<BI7I7I7I7I7', packed, place)
    if its == number then
      local rest = cut(packed, 1, place - 1) .. cut(packed, place + RECORD)
      if rest == '' then
        call('HDEL', ledger.key .. ':ids', id)
      else
        call('HSET', ledger.key .. ':ids', id, rest)
      end
      return hits, taken_at
    end
  end
  return 0, 0
end

-- Takes the members that are due out of a set.
local function take_due(ledger, set, at, most)
  local name = ledger.key .. set
  local members = call('ZRANGEBYSCORE', name, '-inf', text(at + ledger.ahead), 'LIMIT', 0, most)
  if #members > 0 then call('ZREMRANGEBYRANK', name, 0, #members - 1) end
  return members
end

-- The first member of a set that ends, and when.
local function first_of(ledger, set)
  local first = call('ZRANGEBYSCORE', ledger.key .. set, '-inf', '(' .. text(MAX), 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1], first[2] and tonumber(first[2])
end

local function count(ledger)
  local key = ledger.key
  local members = call('ZCARD', key .. ':r') + call('ZCARD', key .. ':c') + call('ZCARD', key .. ':x')
  if ledger.is_new then return members end
  return members - 3
end

-- Makes space for one more record of an id. Returns whether there is any.
local function make_space(ledger, id, records)
  if #records >= ID_RECORDS_MAX then
    local first
    for place, record in ipairs(records) do
      if record.kind >= SETTLED and not (first and records[first].till <= record.till) then first = place end
    end
    if not first then return false end
    local set, member = ordered(ledger, id, records[first])
    call('ZREM', set, member)
    table.remove(records, first)
    save_records(ledger, id, records)
  end
  while count(ledger) >= RECORDS_MAX do
    local first = first_of(ledger, ':x')
    if not first then return false end
    call('ZREM', ledger.key .. ':x', first)
    forget_member(ledger, first)
  end
  return true
end

-- How many records that only need to be forgotten one call removes.
local FORGOTTEN_MAX = 64

-- Ends records that are due, and all of an id that give hits back. `give_back` gives hits back.
local function expire(ledger, id, at, give_back)
  for _, set in ipairs({ ':c', ':x' }) do
    for _, member in ipairs(take_due(ledger, set, at, FORGOTTEN_MAX)) do
      forget_member(ledger, member)
    end
  end
  local ended = false
  for _, member in ipairs(take_due(ledger, ':r', at, ENDED_AT_ONCE_MAX)) do
    ended = true
    local hits, taken_at = forget_member(ledger, member)
    give_back(hits, taken_at - ledger.ahead)
  end
  local due = {}
  for _, record in ipairs(id and all_records_of(ledger, id) or {}) do
    if record.kind == GOES_BACK and record.till <= at + ledger.ahead then due[#due + 1] = record end
  end
  for _, record in ipairs(due) do
    ended = true
    local set, member = ordered(ledger, id, record)
    call('ZREM', set, member)
    forget_member(ledger, member)
    give_back(record.hits, record.taken_at - ledger.ahead)
  end
  return ended
end

-- When the first record that gives hits back is due; MAX without one, none without any record.
local function due_of(ledger)
  local _, first = first_of(ledger, ':r')
  if first then
    first = first - ledger.ahead
    if first < 0 then return 0 end
    return first
  end
  if first_of(ledger, ':c') or first_of(ledger, ':x') then return MAX end
  return nil
end

-- The first or the last record for which `meant` holds.
local function find_record(records, meant, newest)
  local from, to, by = 1, #records, 1
  if newest then from, to, by = #records, 1, -1 end
  for place = from, to, by do
    if meant(records[place]) then return records[place], place end
  end
end

local function is_open(record)
  return record.kind == STAYS or record.kind == GOES_BACK
end

-- Decides one step. `ops` applies operations of the algorithm: take, give_back, charge, nothing; the
-- last one's result is the step's. Returns what became of it (a number of outcome.rs), whether
-- anything changed, and for a settled reservation its amounts.
local NO_ID = '\0\0\0\0\0\0\0\0'
local function decide_step(ledger, kind, id, hits, other, at, ops)
  if kind >= COMMIT and id == NO_ID then
    if kind >= EXTEND or kind == COMMIT then
      ops.nothing()
      return 9, false
    end
    ops.charge(hits)
    return 6, hits > 0
  elseif id == NO_ID then
    ops.nothing()
    return 9, false
  end
  local records = records_of(ledger, id, at)
  if kind >= WITHDRAW then
    local record, place = find_record(records, function(one)
      return is_open(one) and one.taken_at - ledger.ahead == other
    end, true)
    if not record then
      ops.nothing()
      return 9, false
    end
    local its_hits = record.hits
    if kind > WITHDRAW then
      move_record(ledger, id, records, record, REFUSED_BEFORE, record.till)
    else
      local set, member = ordered(ledger, id, record)
      call('ZREM', set, member)
      table.remove(records, place)
      save_records(ledger, id, records)
    end
    ops.undo(its_hits, other)
    return 10, true
  elseif kind >= EXTEND then
    local extended = false
    for _, record in ipairs(records) do
      if is_open(record) then
        extended = true
        move_record(ledger, id, records, record, record.kind, at + ledger.ahead + other)
      end
    end
    ops.nothing()
    if extended then return 8, true end
    return 9, false
  elseif kind >= COMMIT then
    local record = find_record(records, is_open)
    if record then
      local reserved, taken_at = record.hits, record.taken_at - ledger.ahead
      record.committed = hits
      move_record(ledger, id, records, record, SETTLED, record.till)
      if hits > reserved then
        ops.charge(hits - reserved)
      else
        ops.give_back(reserved - hits, taken_at)
      end
      return 4, true, reserved, hits
    end
    if kind == COMMIT + 1 then
      local refused, place = find_record(records, function(one) return one.kind == REFUSED_BEFORE end)
      if not refused then
        ops.charge(hits)
        return 6, hits > 0
      end
      local set, member = ordered(ledger, id, refused)
      call('ZREM', set, member)
      table.remove(records, place)
      save_records(ledger, id, records)
      ops.nothing()
      return 7, true
    end
    local settled = find_record(records, function(one) return one.kind == SETTLED end, true)
    if settled then
      ops.nothing()
      return 5, false, settled.hits, settled.committed
    end
    if kind == COMMIT then
      ops.nothing()
      return 9, false
    end
    ops.charge(hits)
    return 6, hits > 0
  end

  if not make_space(ledger, id, records) then
    ops.nothing()
    return 3, false
  end
  local flags = kind - RESERVE
  local record = { hits = hits, committed = 0, taken_at = at + ledger.ahead, till = at + ledger.ahead + other }
  if ops.take(hits) then
    record.kind = flags % 2
    add_record(ledger, id, records, record)
    return 1, true
  end
  if flags >= 2 then
    record.kind = REFUSED_BEFORE
    add_record(ledger, id, records, record)
    return 2, true
  end
  return 2, false
end

return open_ledger, save_head, expire, due_of, decide_step
