//! Options of a client.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;

use crate::clock::SystemClock;
use crate::transport::{ConnectOptions, Transport};
use crate::{BreakerOptions, Client, Clock, Error, LocalLimit};

/// Protocol between the client and the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// `tollgate.v1`: all calls.
    #[default]
    Tollgate,
    /// Envoy's rate limit protocol: check and peek only.
    Envoy,
}

/// What decides a check or a reservation without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The request passes.
    #[default]
    Allow,
    /// The request is refused.
    Deny,
    /// A token bucket in this process decides: [`ClientBuilder::local`].
    Local,
}

impl OnError {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }
}

/// What becomes of a call whose domain no rules have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum UnknownDomain {
    /// It passes, as the service answers.
    #[default]
    Allow,
    /// It fails with [`Error::Argument`].
    Error,
}

/// Options of a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    pub(crate) addresses: Vec<String>,
    pub(crate) domain: String,
    pub(crate) protocol: Protocol,
    pub(crate) deadline: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_timeout: Duration,
    pub(crate) on_error: OnError,
    pub(crate) unknown_domain: UnknownDomain,
    pub(crate) local: LocalLimit,
    pub(crate) breaker: BreakerOptions,
    pub(crate) denial_cache_entries: usize,
    /// For all checks, for none, or for those of the middleware.
    pub(crate) leases: Option<bool>,
    pub(crate) lease_rounds: bool,
    pub(crate) batching: bool,
    pub(crate) clock: Arc<dyn Clock>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::TlsOptions>,
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("addresses", &self.addresses)
            .field("domain", &self.domain)
            .field("protocol", &self.protocol)
            .field("deadline", &self.deadline)
            .field("on_error", &self.on_error)
            .field("batching", &self.batching)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    pub(crate) fn new(domain: impl Into<String>) -> Self {
        Self {
            addresses: Vec::new(),
            domain: domain.into(),
            protocol: Protocol::default(),
            deadline: Duration::from_millis(100),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            on_error: OnError::default(),
            unknown_domain: UnknownDomain::default(),
            local: LocalLimit::default(),
            breaker: BreakerOptions::default(),
            denial_cache_entries: 10_000,
            leases: None,
            lease_rounds: true,
            batching: false,
            clock: Arc::new(SystemClock::new()),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Adds an address, `host:port`; default: `localhost:8081`. Calls rotate over those that are
    /// connected.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Sets the protocol; default: [`Protocol::Tollgate`].
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the longest wait of a call, connecting included; default: 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Turns on TLS; default: off.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the interval of pings on a connection with calls in flight, and the wait for the
    /// answer; default: 30 s and 10 s.
    #[must_use]
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.keepalive_interval = interval;
        self.keepalive_timeout = timeout;
        self
    }

    /// Sets what decides a check or a reservation without an answer; default: [`OnError::Allow`].
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets what becomes of a check, a peek or a reservation whose domain no rules have; default:
    /// [`UnknownDomain::Allow`]. The breaker and [`OnError`] have no part in that.
    /// [`UnknownDomain::Error`] needs [`Protocol::Tollgate`].
    #[must_use]
    pub fn unknown_domain(mut self, unknown_domain: UnknownDomain) -> Self {
        self.unknown_domain = unknown_domain;
        self
    }

    /// Sets the token bucket of [`OnError::Local`]; default: 10 a second, burst 10.
    #[must_use]
    pub fn local(mut self, local: LocalLimit) -> Self {
        self.local = local;
        self
    }

    /// Sets the circuit breaker; default: 5 failures in a row open it for 1 s.
    #[must_use]
    pub fn breaker(mut self, breaker: BreakerOptions) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets how many refusals are repeated without a call; default: 10,000. 0 turns it off.
    #[must_use]
    pub fn denial_cache(mut self, entries: usize) -> Self {
        self.denial_cache_entries = entries;
        self
    }

    /// Sets whether checks are decided by leased hits, without a call: all checks, or none;
    /// default: those of the [middleware](crate::middleware).
    ///
    /// Hits of a key that is checked often are then leased from the service. A decision by them has
    /// [`Source::Lease`](crate::Source::Lease). [`Client::close`] gives back those that are left.
    /// [`Protocol::Envoy`] has no leases.
    #[must_use]
    pub fn leases(mut self, leases: bool) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Turns off the timer of leases, for tests that call `Client::run_lease_round`.
    #[doc(hidden)]
    #[must_use]
    pub fn without_lease_rounds(mut self) -> Self {
        self.lease_rounds = false;
        self
    }

    /// Sends concurrent checks over one bidirectional stream of [`Protocol::Tollgate`]; default:
    /// off.
    ///
    /// A stream uses one address at a time, so that checks do not rotate over several.
    /// At most 64 checks are in progress on it, and at most 1,024 wait within their deadline. A
    /// check beyond that has the error `UNAVAILABLE`, which the breaker does not count.
    #[must_use]
    pub fn batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Sets the clock of the breaker, the denial cache, leases, the local bucket and the log;
    /// default: the monotonic clock of the operating system.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the client. It connects with [`Client::ready`] or its first call.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the domain is empty, an address is not `host:port`, a number is 0
    /// that must not be, a certificate cannot be read, or batching or [`UnknownDomain::Error`] is
    /// on with [`Protocol::Envoy`].
    pub fn build(self) -> Result<Client, Error> {
        if self.domain.is_empty() {
            return Err(Error::argument("the domain is empty; set a domain"));
        }
        if self.deadline.is_zero() {
            return Err(Error::argument("the deadline is 0; set at least 1 ms"));
        }
        if self.breaker.failures == 0 {
            return Err(Error::argument("breaker failures is 0; set at least 1"));
        }
        if self.local.per_second == 0 {
            return Err(Error::argument("local per_second is 0; set at least 1"));
        }
        if self.batching && self.protocol == Protocol::Envoy {
            return Err(Error::argument(
                "the protocol envoy has no batching; use tollgate",
            ));
        }
        if self.unknown_domain == UnknownDomain::Error && self.protocol == Protocol::Envoy {
            return Err(Error::argument(
                "the protocol envoy does not tell unknown domains; use tollgate",
            ));
        }
        let mut options = self;
        if options.addresses.is_empty() {
            options.addresses.push("localhost:8081".to_owned());
        }
        let addresses = options.addresses.iter().map(|text| authority(text));
        let addresses = addresses.collect::<Result<_, _>>()?;
        let connect = ConnectOptions {
            keepalive_interval: options.keepalive_interval,
            keepalive_timeout: options.keepalive_timeout,
            #[cfg(feature = "tls")]
            tls: options
                .tls
                .as_ref()
                .map(crate::tls::TlsConnector::new)
                .transpose()?,
        };
        Ok(Client::new(options, Transport::new(addresses, connect)))
    }
}

fn authority(text: &str) -> Result<Authority, Error> {
    let authority = is_address(text).then(|| text.parse().ok()).flatten();
    authority.ok_or_else(|| {
        // What is before the last @ may be a password.
        let masked = match text.rsplit_once('@') {
            Some((_, host)) => format!("***@{host}"),
            None => text.to_owned(),
        };
        Error::argument(format!(
            "address \"{masked}\" is invalid; write host:port, such as localhost:8081"
        ))
    })
}

/// Whether it is `host:port`, with an IPv6 address in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(ipv6) => ipv6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(of_name),
    };
    let digits = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    host && digits && port.parse().is_ok_and(|port: u16| port > 0)
}
