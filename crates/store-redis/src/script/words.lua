-- tollgate: decides checks in one atomic step, for Redis 6.2 and later and Valkey. Internal: no
-- other client should call it.
--
-- KEYS      one bucket per check, in order; a bucket may occur twice. Then one marker per check that
--           gives back or resets, in order. Then four keys per bucket whose reservations the call
--           may need: `:ids`, `:r`, `:c` and `:x`.
-- ARGV[1]   the time: empty for Redis's own, 7 bytes for one time, or 7 bytes per check. Only tests
--           send a time.
-- ARGV[2]   one byte per check: the number of its argument among the following, 0 for the next one
--           that no check has had.
-- ARGV[i]   from 3: the different arguments, as argument.rs packs them.
--
-- Without KEYS the call is for one node of a cluster: each different bucket is in ARGV from 4, and
-- the arguments follow. ARGV[3] has one byte per check: the number of the first check of its bucket,
-- 0 for the next bucket. They may be in many slots, and what is not on this node is passed over.
-- Such a call has no reservations, give-backs or resets.
--
-- The reply is one string: one record per check, as outcome.rs reads them.
--
-- A bucket is a string: a version, until when Redis keeps it and the newest time it has seen (both
-- in microseconds since 1970), two registers, marks. The expiry is set again only when too little
-- of the last one is left: about once a window.
--
-- What was taken from the next window stands before the bucket: the beginning of that window, and
-- the hits. The first call after it begins puts the hits into the register.
--
-- A check that takes nothing and gives nothing back is not written, so the bucket has not seen it:
-- a look and a denial cost no write. State::step in Rust has the same rule. A bucket that the
-- second clock law brings back is written.

local call, pcall = redis.call, redis.pcall
local pack, unpack_numbers = struct.pack, struct.unpack
local byte, cut, find, concat = string.byte, string.sub, string.find, table.concat
