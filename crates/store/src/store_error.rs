//! Why a store did not decide a check, each reason in a sentence that says what to look at.
//!
//! Faults of a shared store are a closed list: an operator needs one of a few sentences and not a
//! library's words, and the breaker and the counters need a number. The server's own words go to
//! the log, once per change. `redis/error_class.rs` maps a server's errors to this list.

use tollgate_limiter::Outcome;

/// Why a store did not decide. Nothing was taken, except where [`StoreFault::outcome_unknown`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A queue is full. Waiting would only make it longer.
    #[error(
        "a partition's queue is full ({waiting_max} checks wait): requests arrive faster than they are decided; add replicas or raise --mailbox-checks-max"
    )]
    Overloaded {
        /// How many checks a queue holds.
        waiting_max: usize,
    },
    /// There is no space for a bucket, nor for the bucket that such keys share.
    #[error(
        "a partition is full ({bytes_max} bytes): too many keys are over their limits or have open reservations; raise --memory-max"
    )]
    Full {
        /// How many bytes a partition may take.
        bytes_max: usize,
    },
    /// More buckets were reset within a short time than can be remembered. Nothing was reset.
    #[error(
        "too many buckets were reset: a partition remembers {resets_max} resets for {for_s} s each; reset again later"
    )]
    TooManyResets {
        /// How many resets a partition remembers.
        resets_max: usize,
        /// For how many seconds.
        for_s: u64,
    },
    /// The caller's deadline passed before the checks were decided.
    #[error("the caller's deadline passed before the decision")]
    DeadlineExceeded,
    /// The store is shutting down.
    #[error("the store has stopped")]
    Stopped,
    /// The shared store has a fault. `--on-store-failure` decides what is answered.
    #[error("the shared store did not decide: {0}")]
    Unavailable(StoreFault),
}

/// The result of one check. A check without an outcome took nothing, whatever the other checks of
/// its request did.
pub type CheckResult = Result<Outcome, StoreError>;

/// Why a shared store did not decide.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
pub enum StoreFault {
    /// There is no connection to it.
    #[error("there is no connection to it; is it running, and reachable from here?")]
    NotConnected,
    /// Its name has no address, or the name server does not answer.
    #[error("its name was not looked up; check the name, and the name server of this machine")]
    NameLookup,
    /// The TLS handshake failed, or the files for it cannot be used.
    #[error(
        "there is no TLS connection to it; check the certificates of both sides, and their files"
    )]
    TlsFailed,
    /// It did not answer in time.
    #[error("it did not answer in time; the check may have been counted; see --store-deadline-ms")]
    TimedOut,
    /// The connection broke during the call.
    #[error("the connection broke; the check may have been counted")]
    ConnectionLost,
    /// The check waited for longer than its deadline and was not sent.
    #[error("it is slow, and this check waited past its deadline; see --store-deadline-ms")]
    QueueTimeout,
    /// Too many checks wait already.
    #[error("too many checks wait for it; add replicas or raise --store-queue-max")]
    QueueFull,
    /// The breaker is open: it failed a moment ago, and no call is sent until a probe succeeds.
    #[error("it failed a moment ago; no check is sent until a probe succeeds")]
    BreakerOpen,
    /// It is a replica, or was made read-only.
    #[error("it is read-only: a replica, or a primary that was demoted")]
    ReadOnly,
    /// It is loading its data set.
    #[error("it is loading its data set")]
    Loading,
    /// It cannot write to its disk and is configured to reject writes then.
    #[error("it cannot write to its disk and refuses writes (MISCONF)")]
    CannotPersist,
    /// It is out of memory.
    #[error("it has no memory left (maxmemory) and evicts nothing")]
    OutOfMemory,
    /// Another script blocks it.
    #[error("another script keeps it busy")]
    Busy,
    /// Its cluster does not serve the slot.
    #[error("its cluster is down or has moved the slot")]
    ClusterDown,
    /// It rejects the login, the ACL forbids the command, or the password's file cannot be used.
    #[error("there is no access to it; check the user, the password and its file, and the ACL")]
    AccessDenied,
    /// The ACL forbids a command within the script.
    #[error(
        "its ACL forbids a command of the script; the check may have been counted; \
         docs/shared-limits.md lists the commands"
    )]
    ScriptDenied,
    /// It spreads the keys of one script run over several servers, or has the script on some.
    #[error(
        "it spreads keys over several servers, as a node of a cluster does, or a proxy such as Envoy's \
         redis_proxy, twemproxy or Codis; name one server, or the cluster's nodes (redis+cluster://)"
    )]
    Sharded,
    /// Its reply is not one that the script sends.
    #[error("its reply was not understood; see the log")]
    UnexpectedReply,
    /// The value under the bucket's key is not a bucket.
    #[error(
        "the value under the bucket's key is not a bucket of this version; set a key prefix (CACHE_KEY_PREFIX)"
    )]
    InvalidBucket,
}

// === impl StoreFault ===

impl StoreFault {
    /// All faults, in the order of their numbers, with their labels in metrics.
    const LABELED: [(Self, &str); 19] = [
        (Self::NotConnected, "not_connected"),
        (Self::NameLookup, "name_lookup"),
        (Self::TlsFailed, "tls"),
        (Self::TimedOut, "late"),
        (Self::ConnectionLost, "lost"),
        (Self::QueueTimeout, "waited"),
        (Self::QueueFull, "queue_full"),
        (Self::BreakerOpen, "resting"),
        (Self::ReadOnly, "read_only"),
        (Self::Loading, "loading"),
        (Self::CannotPersist, "cannot_persist"),
        (Self::OutOfMemory, "out_of_memory"),
        (Self::Busy, "busy"),
        (Self::ClusterDown, "cluster_down"),
        (Self::AccessDenied, "refused"),
        (Self::ScriptDenied, "script_refused"),
        (Self::Sharded, "sharded"),
        (Self::UnexpectedReply, "not_understood"),
        (Self::InvalidBucket, "garbled"),
    ];

    /// All faults.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::LABELED.into_iter().map(|(fault, _)| fault)
    }

    /// Its number, from 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The fault with this number; none for 0.
    pub fn of_number(number: u8) -> Option<Self> {
        let index = usize::from(number.checked_sub(1)?);
        Self::LABELED.get(index).map(|(fault, _)| *fault)
    }

    /// Its label in metrics.
    pub fn name(self) -> &'static str {
        let labeled = Self::LABELED.get(self as usize);
        labeled.map_or("", |(_, label)| label)
    }

    /// The fault that later callers see while the breaker is open. That a call timed out concerns
    /// only the checks that were in it.
    #[must_use]
    pub const fn while_breaker_open(self) -> Self {
        if self.outcome_unknown() {
            Self::BreakerOpen
        } else {
            self
        }
    }

    /// Whether the check may have been carried out all the same.
    pub const fn outcome_unknown(self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::ConnectionLost | Self::ScriptDenied | Self::UnexpectedReply
        )
    }

    /// Whether a refund that failed so may be sent again: it was surely not carried out, and what
    /// is not a bucket now is not one later either.
    pub const fn lets_refunds_retry(self) -> bool {
        !self.outcome_unknown() && !matches!(self, Self::InvalidBucket)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_label_values_of_undecided_checks_are_the_names_of_faults() {
        let metrics = tollgate_telemetry::metrics::Metrics::new().unwrap();
        let mut declarations = metrics.declarations();
        let declaration = declarations.find(|one| one.name == "tollgate_store_undecided_total");
        let [label] = declaration.unwrap().labels else {
            unreachable!("it has one label")
        };
        let tollgate_telemetry::metrics::LabelValues::OneOf(declared) = label.values else {
            unreachable!("the values are a list")
        };
        let names: Vec<_> = StoreFault::all().map(StoreFault::name).collect();
        assert_eq!(declared, names);
    }

    #[test]
    fn each_has_a_name_and_a_sentence_of_its_own() {
        let names: BTreeSet<_> = StoreFault::all().map(StoreFault::name).collect();
        let sentences: BTreeSet<_> = StoreFault::all().map(|fault| fault.to_string()).collect();
        let count = StoreFault::LABELED.len();
        assert_eq!((names.len(), sentences.len()), (count, count));
        for fault in StoreFault::all() {
            assert_eq!(StoreFault::of_number(fault.number()), Some(fault));
        }
    }
}
