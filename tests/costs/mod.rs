//! Measurements that need a whole service: `make bench-page`, `make bench-record`,
//! `make bench-ingresses` and `make bench-redis-cluster`.

mod ingresses;
mod page;
mod record;
mod redis_cluster;
