//! Lookups of servers' names, apart from the time for a connection.
//!
//! A lookup takes seconds when the first name server is dead or a packet was lost. So it is a task
//! of its own, which goes on when an attempt to connect stops waiting for it: the next attempt
//! joins it, or uses its answer. While a lookup takes long, the addresses of the one before it are
//! used: most servers come back at the same address.
//!
//! A lookup that had too much time is reported as failed and still awaited: the system's resolver
//! cannot be stopped, and another beside it would block one more thread.
//!
//! An address is not looked up.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use tollgate_system::clock::Clock;
use tollgate_system::per_thread::lock;

/// How long an attempt to connect waits for a lookup.
const WAIT: Duration = Duration::from_secs(1);

/// The same where the addresses of an earlier lookup are known.
const WAIT_WITH_ADDRESSES: Duration = Duration::from_millis(100);

/// For how long an answer that no attempt used is kept, in microseconds. Attempts are seconds apart
/// at most.
const UNUSED_ANSWER_KEPT_US: u64 = 10_000_000;

/// How many names are known at most. A cluster has fewer.
const NAMES_MAX: usize = 1_024;

/// Finds the addresses of a name. Their ports have no meaning.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Starts a lookup.
    fn look_up(&self, name: String) -> Lookup;
}

/// A lookup in progress.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// The resolver of the system.
#[derive(Debug)]
pub struct SystemResolver;

/// The lookups of one store.
pub(super) struct Lookups {
    resolver: Arc<dyn Resolver>,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    /// The lock is held for short look-ups only.
    names: Mutex<HashMap<String, Name>>,
}

/// Why a name has no addresses yet.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the lookup of the name {name} {reason}")]
pub(super) struct LookupError {
    name: String,
    reason: Arc<str>,
}

type Answer = Result<Arc<[SocketAddr]>, Arc<str>>;

/// How far a lookup is.
#[derive(Clone, Default)]
struct Progress {
    /// None while there is time for it.
    answer: Option<Answer>,
    /// In uptime; none while it goes on.
    ended_us: Option<u64>,
}

/// What is known of a name.
#[derive(Default)]
struct Name {
    /// The addresses of the last lookup that found some.
    addresses: Option<Arc<[SocketAddr]>>,
    /// The last lookup.
    lookup: Option<watch::Receiver<Progress>>,
    /// An attempt to connect had the answer of this lookup, or did without it.
    is_used: bool,
}

// === impl SystemResolver ===

impl Resolver for SystemResolver {
    fn look_up(&self, name: String) -> Lookup {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

// === impl Lookups ===

impl Lookups {
    /// Lookups that are reported as failed after `timeout`.
    pub(super) fn new(
        resolver: Arc<dyn Resolver>,
        timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            resolver,
            timeout,
            clock,
            names: Mutex::default(),
        }
    }

    /// The addresses of a host.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (mut lookup, known) = self.start(host);
        let wait = match known {
            Some(_) => WAIT_WITH_ADDRESSES,
            None => WAIT,
        };
        let waiting = lookup.wait_for(|progress| progress.answer.is_some());
        let answer = match tokio::time::timeout(wait, waiting).await {
            Ok(Ok(progress)) => progress.answer.clone(),
            // The task has ended without an answer, which happens when the runtime stops.
            Ok(Err(_)) => Some(Err("was stopped".into())),
            Err(_) => None,
        };
        let is_given_up = answer.is_none() && known.is_none();
        if !is_given_up {
            lock(&self.names)
                .entry(host.to_owned())
                .or_default()
                .is_used = true;
        }
        let unknown = || Err("is in progress; the name server has not answered yet".into());
        let addresses = answer.or(known.map(Ok)).unwrap_or_else(unknown);
        let addresses = addresses.map_err(|reason| LookupError {
            name: host.to_owned(),
            reason,
        })?;
        let with_port = addresses.iter().map(|address| {
            let mut address = *address;
            address.set_port(port);
            address
        });
        Ok(with_port.collect())
    }

    /// Starts the lookup of a host, so that a later wait is shorter.
    pub(super) fn prepare(&self, host: &str) {
        if host.parse::<IpAddr>().is_err() {
            self.start(host);
        }
    }

    /// Whether a lookup of this host is in progress.
    pub(super) fn is_looking_up(&self, host: &str) -> bool {
        let names = lock(&self.names);
        let lookup = names.get(host).and_then(|name| name.lookup.as_ref());
        lookup.is_some_and(|lookup| lookup.borrow().answer.is_none())
    }

    /// The lookup that has not ended, or one that ended a moment ago and whose answer was not used,
    /// or a new one; and the addresses that are known.
    fn start(&self, host: &str) -> (watch::Receiver<Progress>, Option<Arc<[SocketAddr]>>) {
        let mut names = lock(&self.names);
        if names.len() >= NAMES_MAX && !names.contains_key(host) {
            names.clear();
        }
        let name = names.entry(host.to_owned()).or_default();
        if let Some(lookup) = &name.lookup {
            let Progress { answer, ended_us } = lookup.borrow().clone();
            if let Some(Ok(addresses)) = answer {
                name.addresses = Some(addresses);
            }
            let unused_until_us = |us: u64| us.saturating_add(UNUSED_ANSWER_KEPT_US);
            let is_kept = |us| !name.is_used && self.clock.uptime_us() < unused_until_us(us);
            if ended_us.is_none_or(is_kept) {
                return (lookup.clone(), name.addresses.clone());
            }
        }
        let (sender, receiver) = watch::channel(Progress::default());
        let (mut lookup, timeout) = (self.resolver.look_up(host.to_owned()), self.timeout);
        let clock = Arc::clone(&self.clock);
        tokio::spawn(async move {
            let found = if let Ok(found) = tokio::time::timeout(timeout, &mut lookup).await {
                found
            } else {
                let ms = timeout.as_millis();
                let words = format!("had no answer within {ms} ms; see --store-lookup-timeout-ms");
                sender.send_modify(|progress| progress.answer = Some(Err(words.into())));
                lookup.await
            };
            let answer: Answer = match found {
                Ok(addresses) if addresses.is_empty() => Err("found no address".into()),
                Ok(addresses) => Ok(addresses.into()),
                Err(error) => Err(format!("failed: {error}").into()),
            };
            sender.send_replace(Progress {
                answer: Some(answer),
                ended_us: Some(clock.uptime_us()),
            });
        });
        name.lookup = Some(receiver.clone());
        name.is_used = false;
        (receiver, name.addresses.clone())
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;
    use tollgate_system::clock::ManualClock;

    /// A name server whose answers take as long as the test says.
    #[derive(Debug, Default)]
    struct SlowResolver {
        ms: AtomicU64,
        lookups: AtomicUsize,
        fails: AtomicUsize,
    }

    impl Resolver for SlowResolver {
        fn look_up(&self, _: String) -> Lookup {
            let number = self.lookups.fetch_add(1, Ordering::Relaxed) + 1;
            let ms = self.ms.load(Ordering::Relaxed);
            let fails = self.fails.load(Ordering::Relaxed) == number;
            Box::pin(async move {
                // sleep: the clock of the runtime is paused.
                tokio::time::sleep(Duration::from_millis(ms)).await;
                if fails {
                    return Err(io::Error::other("no such name"));
                }
                let last = u8::try_from(number).unwrap();
                Ok(vec![SocketAddr::from(([10, 0, 0, last], 0))])
            })
        }
    }

    struct Server {
        resolver: Arc<SlowResolver>,
        clock: Arc<ManualClock>,
        lookups: Lookups,
    }

    impl Server {
        fn new(ms: u64) -> Self {
            let resolver = Arc::new(SlowResolver::default());
            resolver.ms.store(ms, Ordering::Relaxed);
            let clock = Arc::<ManualClock>::default();
            let timeout = Duration::from_millis(29_900);
            let lookups = Lookups::new(resolver.clone(), timeout, clock.clone());
            Self {
                resolver,
                clock,
                lookups,
            }
        }

        /// The last byte of the address, or what is wrong.
        async fn address(&self) -> Result<u8, String> {
            let found = self.lookups.addresses("cache", 6379).await;
            let found = found.map_err(|error| error.to_string())?;
            assert_eq!(found[0].port(), 6379);
            let IpAddr::V4(address) = found[0].ip() else {
                panic!("{found:?}");
            };
            Ok(address.octets()[3])
        }
    }

    const IN_PROGRESS: &str =
        "the lookup of the name cache is in progress; the name server has not answered yet";

    #[tokio::test(start_paused = true)]
    async fn a_slow_lookup_outlives_the_attempts_that_wait_for_it() {
        for (ms, attempts) in [(0, 0), (900, 0), (1_500, 1), (5_200, 5), (29_500, 29)] {
            let server = Server::new(ms);
            for attempt in 0..attempts {
                let found = server.address().await;
                assert_eq!(found, Err(IN_PROGRESS.to_owned()), "{ms} ms, {attempt}");
            }
            assert_eq!(server.address().await, Ok(1), "{ms} ms");
            assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_between_two_attempts_is_used_once() {
        let server = Server::new(1_500);
        assert_eq!(server.address().await, Err(IN_PROGRESS.to_owned()));
        // sleep: the clock of the runtime is paused.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(server.address().await, Ok(1));
        server.resolver.ms.store(10, Ordering::Relaxed);
        assert_eq!(server.address().await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn known_addresses_are_used_while_a_lookup_takes_long() {
        let server = Server::new(10);
        assert_eq!(server.address().await, Ok(1));
        server.resolver.ms.store(5_000, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(server.address().await, Ok(1));
        }
        assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 2);
        assert!(server.lookups.is_looking_up("cache"));
        // sleep: the clock of the runtime is paused.
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(server.address().await, Ok(2));
        // A fast answer is always the newest.
        server.resolver.ms.store(10, Ordering::Relaxed);
        // sleep: the clock of the runtime is paused.
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(server.address().await, Ok(4));
        // Also if it is that there is no such name.
        server.resolver.fails.store(5, Ordering::Relaxed);
        let gone = "the lookup of the name cache failed: no such name";
        assert_eq!(server.address().await, Err(gone.to_owned()));
        assert_eq!(server.address().await, Ok(6));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_no_attempt_used_is_not_used_long_after() {
        let server = Server::new(10);
        server.lookups.prepare("cache");
        // sleep: the clock of the runtime is paused.
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.clock.advance_us(UNUSED_ANSWER_KEPT_US - 1);
        server.lookups.prepare("cache");
        assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 1);
        server.clock.advance_us(1);
        assert_eq!(server.address().await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_takes_too_long_has_no_other_beside_it() {
        let server = Server::new(100_000);
        let given_up = "the lookup of the name cache had no answer within 29900 ms; see --store-lookup-timeout-ms";
        for attempt in 0..40 {
            let error = if attempt < 29 { IN_PROGRESS } else { given_up };
            assert_eq!(server.address().await, Err(error.to_owned()), "{attempt}");
        }
        assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 1);
        // sleep: the clock of the runtime is paused.
        tokio::time::sleep(Duration::from_secs(100)).await;
        // The late answer is known while the next lookup takes long.
        assert_eq!(server.address().await, Ok(1));
        assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_not_looked_up() {
        let server = Server::new(100_000);
        for host in ["127.0.0.1", "::1"] {
            let found = server.lookups.addresses(host, 7).await.unwrap();
            assert_eq!(found, [SocketAddr::new(host.parse().unwrap(), 7)]);
            server.lookups.prepare(host);
        }
        assert_eq!(server.resolver.lookups.load(Ordering::Relaxed), 0);
    }
}
