-- Penalties (see penalty.rs in the limiter). A bucket whose limit has one begins with what it
-- remembers: PENALTY bytes before the bucket itself.

local SECOND = 1000000

-- What the penalty of a limit, the end of its argument, remembers in a bucket.
local function open_penalty(value, argument)
  local it = { since = 0, till = 0, refusals = 0, blocks = 0 }
  it.after, it.factor, it.within, it.block, it.max = unpack_numbers('<I2BI4I4I4', argument, #argument - 14)
  it.within, it.block, it.max = it.within * SECOND, it.block * SECOND, it.max * SECOND
  local _
  if value then _, it.since, it.till, it.refusals, it.blocks = unpack_numbers('<BI7I7I2B', value) end
  return it
end

-- Applies both clock laws. Returns how long the key is blocked.
local function blocked_for(it, now)
  local ahead = it.since - now
  if ahead > it.within then
    it.since, it.till, it.changed = now, it.till - ahead, true
    if it.till < 0 then it.till = 0 end
  end
  it.at = now
  if it.since > now then it.at = it.since end
  return it.at < it.till and it.till - now
end

-- Counts a refusal. Returns how long the key is blocked from now on.
local function count_refusal(it, now)
  it.changed = true
  if it.refusals == 0 or it.at - it.since >= it.within then it.since, it.refusals = it.at, 0 end
  it.refusals = it.refusals + 1
  if it.refusals < it.after then return false end
  if it.at - it.till >= it.max then it.blocks = 0 end
  local length = it.block
  for _ = 1, it.blocks do
    length = length * it.factor
    if length >= it.max then break end
  end
  if length > it.max then length = it.max end
  it.since, it.till, it.refusals = it.at, it.at + length, 0
  if it.blocks < 255 then it.blocks = it.blocks + 1 end
  return it.till - now
end

local function forgotten_at(it)
  local at = it.till
  if it.blocks > 0 and it.factor > 1 then at = at + it.max end
  if it.refusals > 0 and it.since + it.within > at then at = it.since + it.within end
  return at
end

local function save_penalty(it)
  return pack('<BI7I7I2B', WITH_PENALTY, it.since, it.till, it.refusals, it.blocks)
end

return open_penalty, blocked_for, count_refusal, forgotten_at, save_penalty
