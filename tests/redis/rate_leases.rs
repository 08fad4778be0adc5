//! Leases of rates in a real Redis do what `RateLeaseTable` does: random requests of several
//! replicas on many buckets, on one server and in a cluster while the slot of `{quota}` moves.
//!
//! The replicas are stores in this process. `rate_lease_faults` has what happens when Redis fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollgate::clock::{Clock, SystemClock};
use tollgate::metrics::Metrics;
use tollgate::store::memory::{MemoryLimits, WhenFull};
use tollgate::store::shared::{
    DEMAND_BYTES_MAX, RateLease, RateLeaseRequest, RateLeaseResult, RateLeases,
};
use tollgate::store::{Setup, SharedSettings, Store, StoreBuilder, StoreFault};
use tollgate::store_redis as redis_store;
use tollgate_limiter::Key;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::rate_lease_table::RateLeaseTable;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::seeded_rng::SeededRng;

const MOST: u64 = 1 << 53;

pub(super) const REPLICAS: [u64; 4] = [1, 0x0102_0304_0506_0708, u64::MAX, u64::MAX - 1];

/// A store in this process.
pub(super) struct Replica {
    pub(super) store: Arc<dyn Store>,
    pub(super) leases: Arc<dyn RateLeases>,
    pub(super) metrics: Arc<Metrics>,
}

pub(super) fn settings(url: &str) -> SharedSettings {
    SharedSettings {
        url: url.to_owned(),
        deadline: Duration::from_secs(20),
        queue_bytes_max: 32 << 20,
        over_limit_cache: Duration::from_millis(200),
        ..SharedSettings::default()
    }
}

// === impl Replica ===

impl Replica {
    /// A store that may not be connected yet.
    pub(super) fn start(redis: &dyn StoreBuilder) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let metrics = Arc::new(Metrics::new().unwrap());
        let setup = Setup {
            clock,
            metrics: Arc::clone(&metrics),
            memory: MemoryLimits {
                partitions: 2,
                queue_checks_max: 16_384,
                memory_max: 64 << 20,
                when_full: WhenFull::Share,
            },
            recorder: Some(tollgate::capture::Capture::new()),
        };
        let (store, workers) = redis.build(&setup).unwrap();
        for worker in workers {
            tokio::spawn(worker);
        }
        Self {
            leases: store.rate_leases().unwrap(),
            store,
            metrics,
        }
    }

    /// The same, connected.
    pub(super) async fn connected(settings: &SharedSettings) -> Self {
        Self::start(&*builder(settings)).connect().await
    }

    pub(super) async fn connect(self) -> Self {
        until_async("the store decides", async || match self.store.health() {
            Some(health) if !health.healthy => Err(health),
            _ => Ok(()),
        })
        .await;
        self
    }
}

pub(super) fn builder(settings: &SharedSettings) -> Box<dyn StoreBuilder> {
    (redis_store::BACKEND.configure)(settings).unwrap()
}

/// The tables that Redis must equal, and what the replicas have sent.
pub(super) struct Model {
    rng: SeededRng,
    table: RateLeaseTable,
    versions: BTreeMap<(u128, u64), u64>,
    /// The era of the last answer.
    era: Option<u64>,
    /// What all requests of one exchange say: they are carried out in any order.
    new_era: u64,
    settled_era: u64,
    /// How many results were compared, and how many of them each kind of request had.
    pub(super) compared: usize,
    overtaken: usize,
    with_ended: usize,
}

// === impl Model ===

impl Model {
    pub(super) fn of_seed(seed: u64) -> Self {
        Self {
            rng: SeededRng::of_seed(seed),
            table: RateLeaseTable::default(),
            versions: BTreeMap::new(),
            era: None,
            new_era: 1,
            settled_era: 0,
            compared: 0,
            overtaken: 0,
            with_ended: 0,
        }
    }

    fn rate(&mut self) -> u64 {
        match self.rng.below(6) {
            0 => 0,
            1 => MOST - self.rng.below(3),
            2 => self.rng.below(MOST),
            3 => self.rng.between(1 << 46, 1 << 48),
            _ => self.rng.below(1_000),
        }
    }

    fn request(&mut self, bucket: u128, replica: u64) -> RateLeaseRequest {
        let last = self.versions.entry((bucket, replica)).or_default();
        // A request may be overtaken by a later one of its replica.
        let version = if self.rng.once_in(8) {
            last.saturating_sub(self.rng.below(3))
        } else {
            let far = self.rng.once_in(50);
            *last = (*last + if far { 1 << 44 } else { 1 }).min(MOST);
            *last
        };
        self.overtaken += usize::from(version < self.versions[&(bucket, replica)]);
        let mut ended = Vec::new();
        while self.rng.once_in(3) {
            let who = self.rng.pick(&REPLICAS);
            let seen = self.versions.get(&(bucket, who)).copied().unwrap_or(7);
            let off = u64::from(self.rng.once_in(3));
            ended.push((who, seen.saturating_sub(off)));
        }
        self.with_ended += usize::from(!ended.is_empty());
        let demand = match self.rng.below(4) {
            0 => 0,
            1 => DEMAND_BYTES_MAX,
            _ => self.rng.position(40),
        };
        let demand: Vec<u8> = (0..demand)
            .map(|_| u8::try_from(self.rng.below(256)).unwrap())
            .collect();
        RateLeaseRequest {
            bucket: Key(bucket),
            replica,
            version,
            keeps: self.rate(),
            wants: self.rate(),
            limit: self.rate(),
            demand: Bytes::from(demand),
            ended,
            new_era: self.new_era,
            settled_era: self.settled_era,
        }
    }

    /// Sends a random request for each of these buckets, and compares every result.
    pub(super) async fn compare(&mut self, replicas: &[Replica], buckets: &[u128]) {
        let number = self.rng.position(replicas.len());
        let who = REPLICAS[number];
        self.new_era = self.rng.between(1, u64::MAX);
        self.settled_era = match self.rng.below(50) {
            0 => self.era.unwrap_or(0),
            1 => u64::MAX,
            _ => 0,
        };
        let requests: Vec<_> = buckets.iter().map(|one| self.request(*one, who)).collect();
        let results = replicas[number].leases.exchange(requests.clone()).await;
        assert_eq!(results.len(), requests.len());
        for (request, result) in requests.iter().zip(results) {
            let lease = result.unwrap_or_else(|fault| panic!("{fault:?} {request:?}"));
            self.era = Some(lease.era.id);
            assert_eq!(lease, self.table.exchange(request), "{request:?}");
            self.compared += 1;
        }
    }

    /// Compares what Redis has in these buckets with the tables. Nothing is changed.
    pub(super) async fn compare_contents(&mut self, replica: &Replica, buckets: &[u128]) {
        let requests: Vec<_> = buckets.iter().map(|bucket| look(*bucket)).collect();
        let results = replica.leases.exchange(requests.clone()).await;
        for (request, result) in requests.iter().zip(results) {
            let lease: RateLease = result.unwrap();
            assert_eq!(lease, self.table.exchange(request));
            self.compared += 1;
        }
    }
}

/// A request that changes nothing.
pub(super) fn look(bucket: u128) -> RateLeaseRequest {
    RateLeaseRequest {
        bucket: Key(bucket),
        replica: 99,
        version: 1,
        keeps: 0,
        wants: 0,
        limit: 0,
        demand: Bytes::new(),
        ended: Vec::new(),
        new_era: 1,
        settled_era: 0,
    }
}

/// The result of a single exchange.
pub(super) async fn one(replica: &Replica, request: RateLeaseRequest) -> RateLeaseResult {
    let mut results = replica.leases.exchange(vec![request]).await;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Buckets at both ends of all numbers.
pub(super) fn buckets(count: u128) -> Vec<u128> {
    (0..count)
        .map(|number| {
            if number % 2 == 0 {
                number
            } else {
                u128::MAX - number
            }
        })
        .collect()
}

/// So many replicas on one store.
pub(super) async fn replicas(settings: &SharedSettings) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for _ in REPLICAS {
        replicas.push(Replica::connected(settings).await);
    }
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_exchanges_leases_as_the_table_does() {
    let redis = RedisServer::start(&[]);
    let settings = SharedSettings {
        key_prefix: "my:".to_owned(),
        ..settings(&redis.url())
    };
    let replicas = replicas(&settings).await;
    let mut model = Model::of_seed(71);
    let all = buckets(130);
    for round in 0..300 {
        // Some exchanges need one call and some need many.
        let count = [1, 7, 33, 130][round % 4];
        if round % 50 == 49 {
            let _: redis::Value = redis.say(&["SCRIPT", "FLUSH"]);
        }
        model.compare(&replicas, &all[..count]).await;
    }
    model.compare_contents(&replicas[0], &all).await;
    assert!(model.compared > 10_000, "{}", model.compared);
    assert!(model.overtaken > 500, "{}", model.overtaken);
    assert!(model.with_ended > 500, "{}", model.with_ended);
    let keys: BTreeSet<String> = redis
        .say::<Vec<String>>(&["KEYS", "*"])
        .into_iter()
        .collect();
    assert!(keys.contains("my:tg:{quota}:era"));
    let ttl_ms: i64 = redis.say(&["PTTL", "my:tg:{quota}:era"]);
    assert_eq!(ttl_ms, -1);
    for key in keys
        .iter()
        .filter(|key| key.starts_with("my:tg:{quota}:") && !key.ends_with("era"))
    {
        assert_eq!(key.len(), "my:tg:{quota}:".len() + 32);
        let ttl_ms: i64 = redis.say(&["PTTL", key]);
        assert!((1..=86_400_000).contains(&ttl_ms), "{key}: {ttl_ms}");
    }
    let sent_again: u64 = replicas
        .iter()
        .map(|replica| replica.metrics.store.scripts_sent_again.get())
        .sum();
    assert!(sent_again > 0);
    for replica in &replicas {
        for fault in StoreFault::ALL {
            let counted = replica.metrics.store.rate_lease_fault(fault.name());
            assert_eq!(counted.get(), 0, "{fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_stay_equal_while_their_slot_moves() {
    let cluster = RedisCluster::start(3);
    let replicas = replicas(&settings(&cluster.url())).await;
    let mut model = Model::of_seed(72);
    let all = buckets(60);
    let (known, new) = all.split_at(40);
    for _ in 0..20 {
        model.compare(&replicas, known).await;
    }
    let slot = cluster.begin_move(cluster.slot_of("{quota}"));
    // Only what has leases is in the slot; the others would be created.
    let present = |keys: &[String]| -> Vec<u128> {
        let digits = keys
            .iter()
            .filter_map(|key| key.strip_prefix("tg:{quota}:"));
        digits
            .filter_map(|digits| u128::from_str_radix(digits, 16).ok())
            .collect()
    };
    let mut keys = cluster.keys("tg:{quota}:*");
    let held = present(&keys);
    assert!(held.len() > 10);
    // No key has moved.
    model.compare_contents(&replicas[0], &held).await;
    // The era moves first: until the rest has followed, neither node runs the script.
    keys.sort_unstable_by_key(|key| !key.ends_with("era"));
    let moving = async {
        for key in &keys {
            slot.move_keys(&[key]);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(model.compare_contents(&replicas[0], &held), moving);
    // All keys have moved: `ASK`.
    model.compare_contents(&replicas[0], &held).await;
    let moved = async { slot.finish() };
    tokio::join!(model.compare(&replicas, new), moved);
    for _ in 0..20 {
        model.compare(&replicas, &all).await;
    }
    model.compare_contents(&replicas[0], &all).await;
    assert!(replicas[0].metrics.store.redirects.get() > 0);
}
