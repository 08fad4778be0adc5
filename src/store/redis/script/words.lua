-- tollgate: decides checks in one atomic step. Written for Redis 6.2 and later and Valkey; no other client should call it.
--
-- KEYS      one bucket a check, in order; the same one may come twice.
-- ARGV[1]   the time: nothing for Redis's own, 7 bytes for one time, or 7 a check. Only tests send any.
-- ARGV[i+1] what is asked of KEYS[i], as argument.rs packs it.
-- The reply is one string: 40 bytes a check, as outcome.rs reads them.
--
-- A bucket is a string: a version, in microseconds since 1970 until when Redis keeps it and the newest time it has seen, two
-- registers, marks. An expiry is set again only when too little of the last one is left: about once a window.
--
-- What takes nothing and gives nothing back is not written, so a bucket has not seen it: a look and a refusal cost no write.
-- State::step in Rust has the same rule. A bucket that the second clock law brings back is written.

local call = redis.call
local pack, unpack_numbers = struct.pack, struct.unpack
local cut, find, concat = string.sub, string.find, table.concat
