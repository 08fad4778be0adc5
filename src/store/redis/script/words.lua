-- tollgate: decides checks in one atomic step, for Redis 6.2 and later and Valkey. Internal: no
-- other client should call it.
--
-- KEYS      one bucket per check, in order; a bucket may occur twice. Then one marker per check that
--           gives back or resets, in order.
-- ARGV[1]   the time: empty for Redis's own, 7 bytes for one time, or 7 bytes per check. Only tests
--           send a time.
-- ARGV[i+1] the check of KEYS[i], as argument.rs packs it.
-- The reply is one string: 40 bytes per check, as outcome.rs reads them.
--
-- A bucket is a string: a version, until when Redis keeps it and the newest time it has seen (both
-- in microseconds since 1970), two registers, marks. The expiry is set again only when too little
-- of the last one is left: about once a window.
--
-- A check that takes nothing and gives nothing back is not written, so the bucket has not seen it:
-- a look and a denial cost no write. State::step in Rust has the same rule. A bucket that the
-- second clock law brings back is written.

local call = redis.call
local pack, unpack_numbers = struct.pack, struct.unpack
local cut, find, concat = string.sub, string.find, table.concat
