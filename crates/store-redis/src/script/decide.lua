-- One run of the script (see State::step): for each check, reads its bucket, applies both clock
-- laws, lets its algorithm decide, and writes what has changed.
--
-- A reset removes the bucket and leaves its time in a marker: the key that follows the buckets in
-- KEYS, one for each reset and give-back, in their order. A give-back of hits that were taken no
-- later than the marker says gives nothing. A call of takes and refunds alone has no such key.
--
-- The keys of a ledger follow. A check that needs a ledger whose keys are not among KEYS changes
-- nothing and is left to another call: while a slot moves, Redis knows only of KEYS whether all of
-- them are here.

-- A duration from `wide` plus less than 2^53 more; 0 stays 0.
local function later(us, above, by)
  if us == 0 and not above then return 0 end
  if us < TWO_53 - by then return us + by, above end
  above = (above or 0) + 1
  if above > 2047 then return MAX, 2047 end
  return us - (TWO_53 - by), above
end

local UNREADABLE, ELSEWHERE = '\128', '\129'

local times = ARGV[1]
local now
if times == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local order = ARGV[2]
local keys, checks, newest = KEYS, #order, 2
local is_spread = #keys == 0
-- Buckets whose ledgers are among KEYS, and where these begin.
local ledgers, named = nil, #keys
while named > checks and cut(keys[named], -2) == ':x' do
  ledgers = ledgers or {}
  ledgers[cut(keys[named], 1, -3)] = true
  named = named - 4
end
local values
if is_spread then
  -- All buckets are read before any is written: a bucket that can be read can be written.
  keys, values, newest = {}, {}, 3
  local places = ARGV[3]
  for place = 1, checks do
    local first = byte(places, place)
    if first > 0 then
      keys[place], values[place] = keys[first], values[first]
    else
      newest = newest + 1
      local key = ARGV[newest]
      local value = pcall('GET', key)
      -- A value of another type is another program's; MGET returns nothing for it.
      if type(value) == 'table' then value = not find(value.err, 'WRONGTYPE', 1, true) end
      keys[place], values[place] = key, value
    end
  end
else
  values = call('MGET', unpack(keys, 1, named))
end
local first_argument = newest
local written = {}
-- Buckets of which only the head changes. It is written once, at the end, however many checks the
-- bucket has, in place and without its expiry.
local heads = {}
-- Ledgers without records. They are removed at the end: a later check may need their keys.
local ended
local outcomes = {}
-- Algorithms are defined when they are first needed: a script's functions are created anew in every
-- call.
local known = {}
local number, decide, width, marks_brought_back, refills
local last, algorithm, asked_kind, refused, asked_hits, taken_at, window, life, requests, burst
local rate_hits, per_us, reduced_by, segments, boundaries
local is_plain, is_partial, punishes

-- What a give-back or a reset comes to at this time of its bucket. A reset then looks at its
-- bucket, which is removed already.
local after_reset
local marker = checks
if named > checks then
  after_reset = function(kind, place, taken_at, at, tolerance)
    local name = keys[marker]
    local reset_at = tonumber(name and (written[name] or values[marker]) or nil)
    if kind == GIVE_BACK then return reset_at and taken_at <= reset_at end
    at = at + tolerance
    -- The clock may have been set back since an earlier reset.
    if reset_at and reset_at > at and reset_at - at <= RESET_KEPT then at = reset_at end
    if at > MAX then at = MAX end
    local key = keys[place]
    if ledgers and ledgers[key] then
      call('DEL', key, key .. ':ids', key .. ':r', key .. ':c', key .. ':x')
      if ended then ended[key] = nil end
    else
      call('DEL', key)
    end
    written[key] = nil
    heads[key] = nil
    for other = place, checks do
      if keys[other] == key then values[other] = false end
    end
    written[name] = ('%.0f'):format(at)
    call('SET', name, written[name], 'PX', ('%.0f'):format(RESET_KEPT / 1000))
    return true
  end
end

for place = 1, checks do
  local number_of = byte(order, place)
  if number_of == 0 then
    newest = newest + 1
    number_of = newest - first_argument
  end
  local argument = ARGV[number_of + first_argument]
  if argument ~= last then
    algorithm, asked_kind, refused, asked_hits, taken_at, window, life, requests, burst, rate_hits, per_us, reduced_by, segments, boundaries =
      unpack_numbers('<BBBI7I7I7I7I7I7I7I7I7I2B', argument)
    last = argument
    punishes = refused >= PUNISHES
    if punishes then refused = refused - PUNISHES end
    if algorithm ~= number then
      local it = known[algorithm]
      if not it then
        it = { define(algorithm) }
        known[algorithm] = it
      end
      number, decide, width, marks_brought_back, refills = algorithm, it[1], it[2], it[3], it[4]
    end
    is_partial = asked_kind == TAKE_UP_TO and algorithm == FIXED_WINDOW
    if asked_kind == TAKE_UP_TO then asked_kind = TAKE end
    is_plain = algorithm == FIXED_WINDOW and asked_kind == TAKE and boundaries == 0 and asked_hits > 0
  end
  local kind, hits = asked_kind, asked_hits
  if now == nil or #times > 7 then now = unpack_numbers('<I7', times, 7 * place - 6) end

  local key = keys[place]
  local value = heads[key] or written[key] or values[place]
  local is_decided = false
  if value == true then
    is_decided = true
    outcomes[place] = ELSEWHERE
  elseif is_plain and value and #value == HEAD then
    -- Most checks by far: a take that fits into a fixed window of which the bucket exists. What
    -- follows decides it the same way.
    local version, kept, seen, count, other = unpack_numbers('<BI7I7I7I7', value)
    if version == VERSION and seen <= now and kept - now >= life and count < TWO_53 and other < TWO_53 then
      if seen < now - now % window then count, other = 0, 0 end
      count = count + hits
      if count <= requests and other == 0 then
        is_decided = true
        local head = pack('<BI7I7I7I7', VERSION, kept, now, count, 0)
        heads[key] = head
        outcomes[place] = head
      end
    end
  end
  if not is_decided then
    if kind == GIVE_BACK or kind == RESET then marker = marker + 1 end
    local is_elsewhere = false
    local kept, seen, first, second, marks = 0, 0, 0, 0, ''
    -- The window that follows, and how many of its hits were taken already.
    local next_start, next_count
    -- Only a bucket with reservations has it: when the first that gives hits back is due.
    local due
    local readable = width ~= nil
    -- What the limit's penalty remembers. A bucket that has it, of a limit without one, loses it when
    -- it is written.
    local had_penalty = value and boundaries ~= REFERENCE and byte(value) == WITH_PENALTY
    local penalty, blocked_for, count_refusal, forgotten_at, save_penalty
    if punishes then
      local of = known[PUNISHES]
      if not of then
        of = { define(PUNISHES) }
        known[PUNISHES] = of
      end
      blocked_for, count_refusal, forgotten_at, save_penalty = of[2], of[3], of[4], of[5]
      penalty = of[1](had_penalty and value, argument)
    end
    if had_penalty then value = cut(value, PENALTY + 1) end
    local had_next = value and boundaries ~= REFERENCE and byte(value) == WITH_NEXT
    if had_next then
      readable = readable and #value > NEXT
      if readable then next_start, next_count = unpack_numbers('<I7I7', value, 2) end
      value = cut(value, NEXT + 1)
    end
    if boundaries == REFERENCE then
      -- Only digits, and no more than Redis can add to. What a double cannot hold is far above any
      -- limit.
      local count = 0
      if value then
        count = #value < 19 and find(value, '^%d+$') and tonumber(value)
        readable = readable and count
      end
      if readable then
        if count > MAX then count = MAX end
        local at = unpack_numbers('<I7', argument, EDGES)
        local result = 0
        local is_denied = kind == TAKE_AHEAD
        if kind == GIVE_BACK or kind == RESET then
          local void = after_reset and after_reset(kind, place, taken_at, at, REFERENCE_SKEW)
          if void or taken_at > at then kind, hits = REFUND, 0 end
        elseif kind >= TAKE_AHEAD then
          -- Such a counter has no space for reservations, nor for the next window.
          if kind >= RESERVE then result = kind < COMMIT and 3 or 9 end
          kind, hits = REFUND, 0
        end
        local after, _, changed, allowed, used, remaining, reset, retry =
          decide(kind, hits, taken_at, at, at, count, 0, '', window, requests, burst, refused, rate_hits, per_us,
            reduced_by, segments, 0, argument)
        if changed then
          local new = ('%.0f'):format(after)
          if value then
            call('INCRBY', key, ('%.0f'):format(after - count))
          else
            -- MGET also returns nothing for a value that is not a string, which belongs to another
            -- program.
            readable = call('SET', key, new, 'EX', ('%.0f'):format(life / 1000000), 'NX')
          end
          written[key] = new
        end
        local flags = FULL + 4 * result
        if allowed and result ~= 3 and not is_denied then flags = flags + 1 end
        if retry == nil then flags, retry = flags + 2, 0 end
        outcomes[place] = pack('<BI7I7I7I7I7I2I2', flags, at, used, remaining, reset, retry, 0, 0)
      end
    elseif value and readable then
      local length = #value
      readable = length >= HEAD
      if readable then
        local version
        version, kept, seen, first, second = unpack_numbers('<BI7I7I7I7', value)
        readable = (version == VERSION or version == WITH_LEDGER) and seen < TWO_53 and first < TWO_53 and second < TWO_53
        if version == WITH_LEDGER then
          readable = readable and width == 0 and length == HEAD + 7
          if readable then due = unpack_numbers('<I7', value, HEAD + 1) end
        elseif length > HEAD then
          readable = readable and width > 0 and (length - HEAD) % width == 0
          marks = cut(value, HEAD + 1)
        end
      end
    end

    local needs_ledger = kind >= RESERVE
      or due and kind ~= RESET and (now >= due or seen >= due or seen - now > window)
    if readable and needs_ledger and not (ledgers and ledgers[key]) then
      readable, is_elsewhere = false, true
    end

    if readable and boundaries ~= REFERENCE then
      -- The second law: a time seen in a future that did not come counts as seen now.
      local brought_back = seen - now > window
      local ahead = 0
      if brought_back then
        ahead = seen - now
        if marks ~= '' then marks = marks_brought_back(marks, width, seen - now) end
        seen = now
      end
      -- The first law: an older time counts as the newest that the bucket has seen.
      local at = now
      if seen > at then at = seen end
      local is_next_changed = false
      if next_start and at >= next_start then
        -- That window has begun.
        seen, first, second, next_start = next_start, next_count, 0, nil
      end
      if kind == GIVE_BACK or kind == RESET then
        -- What was taken from the next window before the reset has a later time.
        local void = after_reset and after_reset(kind, place, taken_at, next_start or at, 0)
        if kind == RESET then brought_back, due = false, nil end
        -- The clock was set back meanwhile: what the take weighs now is unknown, so it stays.
        if void or taken_at > at then
          if taken_at == next_start and not void and kind == GIVE_BACK then
            next_count = next_count - hits
            if next_count < 0 then next_count = 0 end
            is_next_changed = true
          end
          kind, hits = REFUND, 0
        end
      end

      local changed, allowed, used, remaining, reset, retry, reset_above, retry_above, new_marks
      -- What became of a step, and the amounts of a settled reservation.
      local result, reserved, committed = 0, nil, nil
      -- How long nothing passes. A check that can be refused is then only looked at.
      local blocked
      local is_punished = penalty and (kind == TAKE or kind >= RESERVE and kind < COMMIT)
      if is_punished then
        blocked = blocked_for(penalty, now)
        if blocked and kind >= RESERVE then
          kind, result = TAKE, 2
          needs_ledger = due and (brought_back or at >= due)
        end
      end
      local is_step = kind >= RESERVE
      local was_seen, was_first, was_second = seen, first, second
      if needs_ledger then
        local ledger_of = known[0]
        if not ledger_of then
          ledger_of = { define(0) }
          known[0] = ledger_of
        end
        local open_ledger, save_head, expire, due_of, decide_step =
          ledger_of[1], ledger_of[2], ledger_of[3], ledger_of[4], ledger_of[5]
        local ledger = open_ledger(key, due)
        if due then ledger.ahead = ledger.ahead + ahead end
        local function operate(op, its_hits, its_time, counts)
          first, second, changed, allowed, used, remaining, reset, retry, reset_above, retry_above =
            decide(op, its_hits, its_time, at, seen, first, second, '', window, requests, burst, counts, rate_hits,
              per_us, reduced_by, segments, boundaries, argument)
          seen = at
          return allowed
        end
        local ops = {
          take = function(its_hits) return operate(TAKE, its_hits, 0, NOT_COUNTED) end,
          charge = function(its_hits) operate(CHARGE, its_hits, 0, refused) end,
          nothing = function() operate(REFUND, 0, 0, refused) end,
          undo = function(its_hits, its_time) operate(GIVE_BACK, its_hits, its_time, refused) end,
          give_back = function(its_hits, its_time)
            operate(refills and REFUND or GIVE_BACK, its_hits, its_time, refused)
          end,
        }
        local id = is_step and cut(argument, HOLDER, HOLDER + 7)
        if expire(ledger, id, at, ops.give_back) then brought_back = true end
        was_seen, was_first, was_second = seen, first, second
        if is_step then
          local step_changed
          result, step_changed, reserved, committed =
            decide_step(ledger, kind, id, hits, taken_at, at, ops)
          if result == 3 then allowed, retry, retry_above = false, taken_at, nil end
          changed = step_changed or due ~= nil
        end
        due = due_of(ledger)
        if due then save_head(ledger) end
        ended = ended or {}
        ended[key] = due == nil or nil
      end
      if kind == TAKE_AHEAD then
        local start = at - at % window + window
        allowed, used = algorithm == FIXED_WINDOW and boundaries == 0 and not due and not penalty, 0
        if next_start == start then used = next_count elseif next_start then allowed = false end
        remaining = requests - used
        local granted = (remaining - remaining % AHEAD_SHARE) / AHEAD_SHARE
        if granted > hits then granted = hits end
        if granted < 1 then allowed = false end
        if allowed then
          next_start, next_count, is_next_changed = start, used + granted, true
          remaining = remaining - granted
        end
        if remaining < 0 then remaining = 0 end
        reset, retry = start + window - at, 0
      elseif blocked then
        first, second, changed, allowed, used, remaining, reset, retry, reset_above, retry_above, new_marks =
          decide(REFUND, 0, 0, at, seen, first, second, marks, window, requests, burst, refused, rate_hits, per_us,
            reduced_by, segments, boundaries, argument)
        allowed, retry, retry_above = false, 0, nil
        if hits == 0 or hits > remaining then
          local _
          _, _, _, _, _, _, _, retry, _, retry_above =
            decide(TAKE, hits, 0, at, was_seen, was_first, was_second, marks, window, requests, burst, NOT_COUNTED,
              rate_hits, per_us, reduced_by, segments, boundaries, argument)
        end
        if used < burst then used = burst end
      elseif not is_step then
        if is_partial then
          local _
          _, _, _, _, _, remaining = decide(REFUND, 0, 0, at, seen, first, second, marks, window, requests, burst, refused,
            rate_hits, per_us, reduced_by, segments, boundaries, argument)
          if remaining > 0 and hits > remaining then hits = remaining end
        end
        first, second, changed, allowed, used, remaining, reset, retry, reset_above, retry_above, new_marks =
          decide(kind, hits, taken_at, at, seen, first, second, marks, window, requests, burst, refused, rate_hits,
            per_us, reduced_by, segments, boundaries, argument)
      end

      if is_punished and not blocked and not allowed and hits > 0 then blocked = count_refusal(penalty, now) end
      local is_changed = changed or brought_back or kind == CHARGE and hits > 0
      local kept_at = at
      if (is_next_changed or penalty and penalty.changed) and not is_changed then
        -- The bucket itself stays as it is.
        is_changed, kept_at, first, second, new_marks = true, was_seen, was_first, was_second, marks
      end

      if is_changed then
        local expires
        local keep_for = life
        if penalty and forgotten_at(penalty) - now > keep_for then keep_for = forgotten_at(penalty) - now end
        if next_start and next_start + window - now > keep_for then keep_for = next_start + window - now end
        if kind >= CHARGE or refused == IN_FULL then
          -- Debt and open reservations can last longer.
          if reset > keep_for then keep_for = reset end
          if (kind < COMMIT and is_step or kind == EXTEND) and taken_at > keep_for then keep_for = taken_at end
          if reset_above or keep_for > LIFE_MAX then keep_for = LIFE_MAX end
        end
        if kept - now < keep_for then
          -- A window longer than needed, so that the expiry is not set at every hit.
          local keep = keep_for + window
          if keep > 2 * keep_for then keep = 2 * keep_for end
          kept = now + keep
          if kept > MAX then kept = MAX end
          expires = (keep + 999 - (keep + 999) % 1000) / 1000
        end
        local new
        if due then
          new = pack('<BI7I7I7I7I7', WITH_LEDGER, kept, kept_at, first, second, due)
        else
          new = pack('<BI7I7I7I7', VERSION, kept, kept_at, first, second)
          if new_marks then new = new .. new_marks end
        end
        if next_start then new = pack('<BI7I7', WITH_NEXT, next_start, next_count) .. new end
        if penalty and (had_penalty or penalty.changed) then new = save_penalty(penalty) .. new end
        local is_new_head = value and not had_penalty and not had_next and not expires and #value == HEAD and #new == HEAD
        if is_new_head then
          heads[key] = new
        elseif not value then
          -- MGET also returns nothing for a value that is not a string, which belongs to another
          -- program.
          readable = call('SET', key, new, 'PX', expires, 'NX')
        elseif expires then
          call('SET', key, new, 'PX', expires)
        else
          call('SET', key, new, 'KEEPTTL')
        end
        if readable and not is_new_head then written[key], heads[key] = new, nil end
        if due and is_step then
          local left = kept - now
          left = (left + 999 - (left + 999) % 1000) / 1000
          for _, set in ipairs({ ':ids', ':r', ':c', ':x' }) do call('PEXPIRE', key .. set, ('%.0f'):format(left)) end
        end
      end

      -- The caller counts from its own time, which the first law may have moved.
      if at > now then
        reset, reset_above = later(reset, reset_above, at - now)
        if retry then retry, retry_above = later(retry, retry_above, at - now) end
      end
      if reserved then used, retry, retry_above = reserved, committed, nil end
      if asked_kind == RESET and used == 0 and (next_start or penalty and forgotten_at(penalty) > now) then used = 1 end
      if blocked then
        remaining = 0
        if reset < blocked and not reset_above then reset = blocked end
        if retry and retry < blocked and not retry_above then retry = blocked end
        result = BLOCKED + result
      end
      local flags = FULL + 4 * result
      if allowed then flags = flags + 1 end
      if retry == nil then flags, retry = flags + 2, 0 end
      outcomes[place] =
        pack('<BI7I7I7I7I7I2I2', flags, at, used, remaining, reset, retry, reset_above or 0, retry_above or 0)
    end
    if not readable then outcomes[place] = is_elsewhere and ELSEWHERE or UNREADABLE end
  end
end
for key, head in pairs(heads) do
  -- It costs two thirds of SET. A login that was restricted for an earlier version may lack it.
  local reply = pcall('SETRANGE', key, '0', head)
  if type(reply) == 'table' then call('SET', key, head, 'KEEPTTL') end
end
if ended then
  for key in pairs(ended) do call('DEL', key .. ':ids', key .. ':r', key .. ':c', key .. ':x') end
end
return concat(outcomes)
