//! Why a store did not decide a check, each reason in a sentence that says what to look at.
//!
//! Faults of a shared store are a closed list: an operator needs one of a few sentences and not a
//! library's words, and the breaker and the counters need a number. The server's own words go to
//! the log, once per change. `redis/error_class.rs` maps a server's errors to this list.

use std::fmt;

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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StoreFault {
    /// There is no connection to it.
    NotConnected,
    /// Its name has no address, or the name server does not answer.
    NameLookup,
    /// The TLS handshake failed, or the files for it cannot be used.
    TlsFailed,
    /// It did not answer in time.
    TimedOut,
    /// The connection broke during the call.
    ConnectionLost,
    /// The check waited for longer than its deadline and was not sent.
    QueueTimeout,
    /// Too many checks wait already.
    QueueFull,
    /// The breaker is open: it failed a moment ago, and no call is sent until a probe succeeds.
    BreakerOpen,
    /// It is a replica, or was made read-only.
    ReadOnly,
    /// It is loading its data set.
    Loading,
    /// It cannot write to its disk and is configured to reject writes then.
    CannotPersist,
    /// It is out of memory.
    OutOfMemory,
    /// Another script blocks it.
    Busy,
    /// Its cluster does not serve the slot.
    ClusterDown,
    /// It rejects the login, the ACL forbids the command, or the password's file cannot be used.
    AccessDenied,
    /// The ACL forbids a command within the script.
    ScriptDenied,
    /// It spreads the keys of one script run over several servers, or has the script on some.
    Sharded,
    /// Its reply is not one that the script sends.
    UnexpectedReply,
    /// The value under the bucket's key is not a bucket.
    InvalidBucket,
}

// === impl StoreFault ===

impl StoreFault {
    /// All faults.
    pub const ALL: [Self; 19] = [
        Self::NotConnected,
        Self::NameLookup,
        Self::TlsFailed,
        Self::TimedOut,
        Self::ConnectionLost,
        Self::QueueTimeout,
        Self::QueueFull,
        Self::BreakerOpen,
        Self::ReadOnly,
        Self::Loading,
        Self::CannotPersist,
        Self::OutOfMemory,
        Self::Busy,
        Self::ClusterDown,
        Self::AccessDenied,
        Self::ScriptDenied,
        Self::Sharded,
        Self::UnexpectedReply,
        Self::InvalidBucket,
    ];

    /// Its position in [`StoreFault::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Its label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
            Self::NameLookup => "name_lookup",
            Self::TlsFailed => "tls",
            Self::TimedOut => "late",
            Self::ConnectionLost => "lost",
            Self::QueueTimeout => "waited",
            Self::QueueFull => "queue_full",
            Self::BreakerOpen => "resting",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::CannotPersist => "cannot_persist",
            Self::OutOfMemory => "out_of_memory",
            Self::Busy => "busy",
            Self::ClusterDown => "cluster_down",
            Self::AccessDenied => "refused",
            Self::ScriptDenied => "script_refused",
            Self::Sharded => "sharded",
            Self::UnexpectedReply => "not_understood",
            Self::InvalidBucket => "garbled",
        }
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
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "there is no connection to it; is it running, and reachable from here?",
            Self::NameLookup => "its name was not looked up; check the name, and the name server of this machine",
            Self::TlsFailed => "there is no TLS connection to it; check the certificates of both sides, and their files",
            Self::TimedOut => {
                "it did not answer in time; the check may have been counted; see --store-deadline-ms"
            }
            Self::ConnectionLost => "the connection broke; the check may have been counted",
            Self::QueueTimeout => "it is slow, and this check waited past its deadline; see --store-deadline-ms",
            Self::QueueFull => "too many checks wait for it; add replicas or raise --store-queue-max",
            Self::BreakerOpen => "it failed a moment ago; no check is sent until a probe succeeds",
            Self::ReadOnly => "it is read-only: a replica, or a primary that was demoted",
            Self::Loading => "it is loading its data set",
            Self::CannotPersist => "it cannot write to its disk and refuses writes (MISCONF)",
            Self::OutOfMemory => "it has no memory left (maxmemory) and evicts nothing",
            Self::Busy => "another script keeps it busy",
            Self::ClusterDown => "its cluster is down or has moved the slot",
            Self::AccessDenied => "there is no access to it; check the user, the password and its file, and the ACL",
            Self::ScriptDenied => {
                "its ACL forbids a command of the script; the check may have been counted; \
                 docs/shared-limits.md lists the commands"
            }
            Self::Sharded => {
                "it spreads keys over several servers, as a node of a cluster does, or a proxy such as Envoy's \
                 redis_proxy, twemproxy or Codis; name one server, or the cluster's nodes (redis+cluster://)"
            }
            Self::UnexpectedReply => "its reply was not understood; see the log",
            Self::InvalidBucket => {
                "the value under the bucket's key is not a bucket of this version; set a key prefix (CACHE_KEY_PREFIX)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_values_of_undecided_checks_are_the_names_of_faults() {
        let metrics = crate::metrics::Metrics::new().unwrap();
        let mut declarations = metrics.declarations();
        let declaration = declarations.find(|one| one.name == "tollgate_store_undecided_total");
        let [label] = declaration.unwrap().labels else {
            unreachable!("it has one label")
        };
        let crate::metrics::LabelValues::OneOf(declared) = label.values else {
            unreachable!("the values are a list")
        };
        assert_eq!(declared, StoreFault::ALL.map(StoreFault::name));
    }

    #[test]
    fn each_has_a_name_and_a_sentence_of_its_own() {
        let names: std::collections::BTreeSet<_> =
            StoreFault::ALL.iter().map(|fault| fault.name()).collect();
        let sentences: std::collections::BTreeSet<_> =
            StoreFault::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), StoreFault::ALL.len());
        for (number, fault) in StoreFault::ALL.into_iter().enumerate() {
            assert_eq!(fault.number(), number);
        }
        assert_eq!(sentences.len(), StoreFault::ALL.len());
    }
}
