//! Random histories of callers that lease from replicas which share a real Redis, beside a naive
//! count: what is left, what is granted, what comes back, and what checks admit.
//!
//! Callers lease, lose answers, return, return again, at both replicas at once, and after the
//! expiry. Rules with lower and higher limits reach one replica before the other. Others check the
//! same limit, in leased mode from hits that a replica holds.
//!
//! A limit that was lowered grants nothing while as many hits are taken, and takes no lease back:
//! its hits stay valid and can be returned. So a grant never exceeds the limit of the replica that
//! makes it, whatever was granted before.
//!
//! The replicas' clocks are the test's. Redis counts by its own, in a window of a year.
//! `crates/engine/src/tests/lease_model.rs` has windows that turn, and token buckets, in memory.
//! `HISTORIES` sets how many there are.

use tokio::task::JoinSet;
use tollgate::clock::Clock as _;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{CheckRequest, Verdict};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::in_process::{Service, publish};
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::{SeededRng, from_environment};

use super::caller_leases::{give_back, lease};
use super::connected;
use super::reservations::{Client, descriptor, left};

const HISTORIES: u64 = 40;
const STEPS: u64 = 30;

/// A history draws limits up to this one.
const LIMIT_MAX: u64 = 400;

/// No lease ends in Redis before its history does.
const AGE_US: u64 = 60_000_000;

/// No call is in flight for so long.
const PAUSE_US: u64 = 20_000_000;

/// A lease that a caller knows of.
struct Held {
    id: String,
    granted: u64,
    /// When its id says that it ends, in milliseconds.
    expires_ms: u64,
    /// What the first return gave back.
    returned: Option<u64>,
}

struct World {
    replicas: [Service; 2],
    clients: [Client; 2],
    /// The limit at each replica.
    limits: [u64; 2],
    /// The limit under which each replica last took hits for checks. They stay valid until a check
    /// meets another limit, whatever others take under a higher one.
    taken_under: [u64; 2],
    is_leased: bool,
    chance: SeededRng,
    /// The rule and the number of the history.
    key: &'static str,
    value: String,
    /// Hits that checks and leases took, without those that came back.
    taken: u64,
    leases: Vec<Held>,
}

/// Rules with this limit, the tightest of each rule.
fn rules(limit: u64) -> String {
    let (one, other) = if limit.is_multiple_of(2) {
        (limit, limit + 100)
    } else {
        (limit + 100, limit)
    };
    format!(
        "
domain: d
all_or_nothing: true
descriptors:
- {{ key: one, rate_limit: {{ unit: year, requests_per_unit: {limit}, count_refused: none }} }}
- key: two
  rate_limits:
    - {{ unit: year, requests_per_unit: {one}, count_refused: none }}
    - {{ unit: year, unit_multiplier: 2, requests_per_unit: {other}, count_refused: none }}
"
    )
}

// === impl World ===

impl World {
    async fn new(redis: &RedisServer, mode: &str) -> Self {
        let url = redis.url();
        let arguments = [
            ["--store", &*url],
            ["--store-mode", mode],
            ["--store-deadline-ms", "60000"],
            ["--lease-age-max-ms", "60000"],
        ];
        let arguments = arguments.concat();
        let first = connected(Service::start(&rules(LIMIT_MAX), &arguments).await).await;
        let second = connected(Service::start(&rules(LIMIT_MAX), &arguments).await).await;
        let clients = [
            RateLimitsClient::new(channel(first.grpc).await),
            RateLimitsClient::new(channel(second.grpc).await),
        ];
        Self {
            replicas: [first, second],
            clients,
            limits: [LIMIT_MAX; 2],
            taken_under: [0; 2],
            is_leased: mode == "leased",
            chance: SeededRng::of_seed(0),
            key: "one",
            value: String::new(),
            taken: 0,
            leases: Vec::new(),
        }
    }

    /// One history, of a bucket of its own.
    async fn run(&mut self, history: u64) {
        self.chance = SeededRng::of_seed(history);
        self.key = self.chance.pick(&["one", "two"]);
        self.value = history.to_string();
        self.taken = 0;
        self.taken_under = [0; 2];
        self.leases.clear();
        let limit = self.draw_limit();
        self.reload(0, limit);
        self.reload(1, limit);
        for _ in 0..STEPS {
            self.step().await;
            self.agrees().await;
        }
        // What was hidden by a lowered limit shows, and what replicas held has gone back.
        self.reload(0, 2 * LIMIT_MAX);
        self.reload(1, 2 * LIMIT_MAX);
        self.pass(AGE_US + PAUSE_US).await;
        until_async("nothing is held", async || {
            self.agrees().await;
            match self.held() {
                0 => Ok(()),
                held => Err(held),
            }
        })
        .await;
    }

    async fn step(&mut self) {
        let at = self.chance.position(2);
        match self.chance.below(12) {
            0..=3 => self.lease(at).await,
            4..=6 if !self.leases.is_empty() => self.give_back(at).await,
            // A limit beside another is not leased to its replica here: what each of two limits
            // holds is not known.
            7 | 8 if self.key == "one" || !self.is_leased => self.check(at).await,
            9 | 10 => {
                let limit = self.draw_limit();
                self.reload(at, limit);
            }
            _ => {
                let us = self.chance.pick(&[1, 1_000_000, PAUSE_US, AGE_US]);
                self.pass(us).await;
            }
        }
    }

    fn draw_limit(&mut self) -> u64 {
        let most = self.chance.pick(&[10, LIMIT_MAX / 4, LIMIT_MAX]);
        1 + self.chance.below(most)
    }

    fn reload(&mut self, at: usize, limit: u64) {
        publish(&self.replicas[at].generations, rules(limit));
        self.limits[at] = limit;
    }

    /// Lets time pass for the replicas.
    async fn pass(&mut self, us: u64) {
        let mut rest_us = us;
        while rest_us > 0 {
            let us = rest_us.min(PAUSE_US);
            rest_us -= us;
            for replica in &self.replicas {
                replica.clock.advance_us(us);
            }
            // What was sent before is answered before.
            for client in &mut self.clients {
                left(client, self.key, &self.value).await;
            }
        }
    }

    /// What replicas hold for checks.
    fn held(&self) -> u64 {
        self.held_at(0) + self.held_at(1)
    }

    fn held_at(&self, at: usize) -> u64 {
        let held = self.replicas[at].metrics.leases.hits_held.get();
        u64::try_from(held).unwrap()
    }

    /// What may be granted at a replica.
    fn grantable(&self, at: usize) -> u64 {
        self.limits[at].saturating_sub(self.taken)
    }

    /// What is left is the limit without what is taken and held. It is never more.
    async fn agrees(&mut self) {
        for at in 0..2 {
            let grantable = self.grantable(at);
            until_async("hits on their way back have come", async || {
                let left = left(&mut self.clients[at], self.key, &self.value).await;
                assert!(left <= grantable, "{left} left, {grantable} of the count");
                let held = self.held();
                if left == grantable.saturating_sub(held) {
                    Ok(())
                } else {
                    Err((left, grantable, held))
                }
            })
            .await;
        }
    }

    async fn lease(&mut self, at: usize) {
        let wanted = 1 + self.chance.below(300);
        let grantable = self.grantable(at);
        let most = wanted.min(grantable / 4).max(1).min(grantable);
        let (mut id, mut granted) = self.ask_lease(at, wanted).await;
        if granted == 0 && grantable > self.held() {
            self.forget_denials().await;
            (id, granted) = self.ask_lease(at, wanted).await;
            assert!(granted > 0, "0 of {grantable}");
        }
        assert!(granted <= most, "{granted} of {grantable}");
        self.taken += granted;
        // Answers are lost now and then.
        if granted > 0 && self.chance.below(6) > 0 {
            let expires_ms = id.split('.').nth(1).unwrap().parse().unwrap();
            self.leases.push(Held {
                id,
                granted,
                expires_ms,
                returned: None,
            });
        }
    }

    async fn ask_lease(&mut self, at: usize, wanted: u64) -> (String, u64) {
        lease(&mut self.clients[at], (self.key, &self.value), wanted).await
    }

    /// A replica repeats a denial for at most a second, although another took hits back.
    async fn forget_denials(&mut self) {
        self.pass(1_000_000).await;
    }

    /// A caller gives back, at one replica or at both at once.
    async fn give_back(&mut self, at: usize) {
        let lease = self.chance.position(self.leases.len());
        let held = &mut self.leases[lease];
        let asked = if self.chance.once_in(3) {
            at..at + 1
        } else {
            0..2
        };
        let mut calls = JoinSet::new();
        for at in asked {
            let mut client = self.clients[at].clone();
            let (value, id) = (self.value.clone(), held.id.clone());
            let (key, unused) = (self.key, self.chance.below(held.granted + 1));
            let now_ms = self.replicas[at].clock.now().as_us() / 1_000;
            let has_expired = now_ms >= held.expires_ms;
            calls.spawn(async move {
                let returned = give_back(&mut client, (key, &value), &id, unused).await;
                (has_expired, unused, returned)
            });
        }
        let answers = calls.join_all().await;
        let live = answers.iter().filter(|(has_expired, ..)| !has_expired);
        if held.returned.is_none()
            && let Some((.., returned)) = live.clone().next()
        {
            assert!(live.clone().any(|(_, unused, _)| unused == returned));
            held.returned = Some(*returned);
            self.taken -= returned;
        }
        for (has_expired, _, returned) in answers {
            let first = held.returned.unwrap_or_default();
            assert_eq!(returned, if has_expired { 0 } else { first });
        }
    }

    async fn check(&mut self, at: usize) {
        let (grantable, held, limit) = (self.grantable(at), self.held(), self.limits[at]);
        let may_hold = self.held_at(at) > 0 && self.taken_under[at] == limit;
        let mut verdict = self.ask_check(at).await;
        if verdict != Verdict::Ok && grantable > held {
            self.forget_denials().await;
            verdict = self.ask_check(at).await;
            assert_eq!(verdict, Verdict::Ok, "{grantable} left, {held} held");
        }
        if verdict == Verdict::Ok {
            assert!(grantable > 0 || may_hold, "admitted beyond the limit");
            self.taken += 1;
            self.taken_under[at] = limit;
        }
    }

    async fn ask_check(&mut self, at: usize) -> Verdict {
        let check = CheckRequest {
            domain: "d".to_owned(),
            descriptors: descriptor(self.key, &self.value),
            hits: None,
        };
        let answer = self.clients[at].check(check).await.unwrap();
        answer.into_inner().verdict()
    }
}

async fn leases_agree_with_a_count(mode: &str) {
    let redis = RedisServer::start(&[]);
    let mut world = World::new(&redis, mode).await;
    for history in 0..from_environment("HISTORIES").unwrap_or(HISTORIES) {
        // A failure names its history.
        println!("history {history}");
        world.run(history).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_exact_mode_leases_agree_with_a_count_in_any_history() {
    leases_agree_with_a_count("exact").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_leased_mode_leases_agree_with_a_count_in_any_history() {
    leases_agree_with_a_count("leased").await;
}
