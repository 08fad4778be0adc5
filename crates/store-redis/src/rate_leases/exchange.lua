-- tollgate: one exchange of a lease of a rate in one atomic step, for Redis 6.2 and later and Valkey.
-- Internal: no other client should call it.
--
-- KEYS[1]  the bucket, a hash. A field is a replica, 16 hexadecimal digits. Its value is the version
--          and what the replica holds, 8 bytes each, and its demand.
-- KEYS[2]  the era: 16 hexadecimal digits, and 's' if it is settled.
-- ARGV[1]  the replica that asks.
-- ARGV[2]  its version, what it keeps, what it wants, and the limit: 8 bytes each.
-- ARGV[3]  its demand.
-- ARGV[4]  the ended leases, 24 bytes each: a replica and the version that was seen.
-- ARGV[5]  the era that begins if none has begun.
-- ARGV[6]  the era that is settled, or nothing.
--
-- The reply: what the replica holds, the version of its lease before (8 bytes), the era, and for
-- each other lease its field and its value.
--
-- All numbers are at most 2^53, so a double has each exactly. No time decides.
-- RateLeaseTable::exchange in Rust does the same.

local call, pcall = redis.call, redis.pcall
local pack, unpack_numbers, cut = struct.pack, struct.unpack, string.sub
local bucket, replica = KEYS[1], ARGV[1]

local leases = pcall('HGETALL', bucket)
if leases.err then return leases end
if #leases > 2 * LEASES_MAX then return redis.error_reply('INVALIDLEASE too many') end

local ended
local list = ARGV[4]
if list ~= '' then
  ended = {}
  for at = 1, #list, 24 do ended[cut(list, at, at + 23)] = true end
end

-- Nothing is written before every lease has been read.
local reply, size = { 0, '', '' }, 3
local taken = 0
local own_version, own_holds
local removed
for at = 1, #leases, 2 do
  local field, lease = leases[at], leases[at + 1]
  if #field ~= 16 or #lease < 16 then return redis.error_reply('INVALIDLEASE length') end
  local version, holds = unpack_numbers('>I8I8', lease)
  if version > TWO_53 or holds > TWO_53 then return redis.error_reply('INVALIDLEASE number') end
  if field == replica then
    own_version, own_holds = version, holds
  elseif ended and ended[field .. cut(lease, 1, 8)] then
    removed = removed or {}
    removed[#removed + 1] = field
  else
    taken = taken + holds
    reply[size + 1], reply[size + 2] = field, lease
    size = size + 2
  end
end

local era = pcall('GET', KEYS[2])
if type(era) == 'table' then return era end
if era and #era ~= 16 and #era ~= 17 then return redis.error_reply('INVALIDLEASE era') end
if not era then
  era = ARGV[5]
  call('SET', KEYS[2], era)
end
if era == ARGV[6] then
  era = era .. 's'
  call('SET', KEYS[2], era)
end
reply[2], reply[3] = pack('>I8', own_version or 0), era

if removed then
  for _, field in ipairs(removed) do call('HDEL', bucket, field) end
end

local version, keeps, wants, limit = unpack_numbers('>I8I8I8I8', ARGV[2])
if own_version and own_version >= version then
  -- A later request has overtaken this one.
  reply[1] = own_holds
  return reply
end
local holds = limit - taken
if holds < 0 then holds = 0 end
if wants < holds then holds = wants end
if keeps > holds then holds = keeps end
reply[1] = holds
local demand = ARGV[3]
if holds == 0 and demand == '' then
  if own_version then call('HDEL', bucket, replica) end
else
  call('HSET', bucket, replica, pack('>I8I8', version, holds) .. demand)
  call('PEXPIRE', bucket, KEPT_MS)
end
return reply
