//! Measurements that need a whole service: `make bench-page`, `make bench-record`,
//! `make bench-ingresses`, `make bench-redis-cluster` and `make bench-regions`.

mod ingresses;
mod page;
mod record;
mod redis_cluster;
mod regions;
