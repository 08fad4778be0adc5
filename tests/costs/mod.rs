//! Measurements that need a whole service: `make bench-page`, `make bench-record` and
//! `make bench-redis-cluster`.

mod page;
mod record;
mod redis_cluster;
