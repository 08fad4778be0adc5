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

tollgate_limiter::named! {
    /// Why a shared store did not decide, in the order of the numbers. The names are those of
    /// labels in metrics.
    #[derive(thiserror::Error)]
    pub enum StoreFault {
        /// There is no connection to it.
        #[error("there is no connection to it; is it running, and reachable from here?")]
        NotConnected = "not_connected",
        /// Its name has no address, or the name server does not answer.
        #[error("its name was not looked up; check the name, and the name server of this machine")]
        NameLookup = "name_lookup",
        /// The TLS handshake failed, or the files for it cannot be used.
        #[error(
            "there is no TLS connection to it; check the certificates of both sides, and their files"
        )]
        TlsFailed = "tls",
        /// It did not answer in time.
        #[error("it did not answer in time; the check may have been counted; see --store-deadline-ms")]
        TimedOut = "late",
        /// The connection broke during the call.
        #[error("the connection broke; the check may have been counted")]
        ConnectionLost = "lost",
        /// The check waited for longer than its deadline and was not sent.
        #[error("it is slow, and this check waited past its deadline; see --store-deadline-ms")]
        QueueTimeout = "waited",
        /// Too many checks wait already.
        #[error("too many checks wait for it; add replicas or raise --store-queue-max")]
        QueueFull = "queue_full",
        /// The breaker is open: it failed a moment ago, and no call is sent until a probe succeeds.
        #[error("it failed a moment ago; no check is sent until a probe succeeds")]
        BreakerOpen = "resting",
        /// It is a replica, or was made read-only.
        #[error("it is read-only: a replica, or a primary that was demoted")]
        ReadOnly = "read_only",
        /// It is loading its data set.
        #[error("it is loading its data set")]
        Loading = "loading",
        /// It cannot write to its disk and is configured to reject writes then.
        #[error("it cannot write to its disk and refuses writes (MISCONF)")]
        CannotPersist = "cannot_persist",
        /// It is out of memory.
        #[error("it has no memory left (maxmemory) and evicts nothing")]
        OutOfMemory = "out_of_memory",
        /// Another script blocks it.
        #[error("another script keeps it busy")]
        Busy = "busy",
        /// Its cluster does not serve the slot.
        #[error("its cluster is down or has moved the slot")]
        ClusterDown = "cluster_down",
        /// It rejects the login, the ACL forbids the command, or the password's file cannot be
        /// used.
        #[error("there is no access to it; check the user, the password and its file, and the ACL")]
        AccessDenied = "refused",
        /// The ACL forbids a command within the script.
        #[error(
            "its ACL forbids a command of the script; the check may have been counted; \
             docs/shared-limits.md lists the commands"
        )]
        ScriptDenied = "script_refused",
        /// It spreads the keys of one script run over several servers, or has the script on some.
        #[error(
            "it spreads keys over several servers, as a node of a cluster does, or a proxy such as Envoy's \
             redis_proxy, twemproxy or Codis; name one server, or the cluster's nodes (redis+cluster://)"
        )]
        Sharded = "sharded",
        /// Its reply is not one that the script sends.
        #[error("its reply was not understood; see the log")]
        UnexpectedReply = "not_understood",
        /// The value under the bucket's key is not a bucket.
        #[error(
            "the value under the bucket's key is not a bucket of this version; set a key prefix (CACHE_KEY_PREFIX)"
        )]
        InvalidBucket = "garbled",
    }
}

// === impl StoreFault ===

impl StoreFault {
    /// Its number, from 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The fault with this number; none for 0.
    pub fn of_number(number: u8) -> Option<Self> {
        let index = usize::from(number.checked_sub(1)?);
        Self::ALL.get(index).copied()
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
        assert_eq!(declared, StoreFault::NAMES);
    }

    #[test]
    fn each_has_a_name_and_a_sentence_of_its_own() {
        let names: BTreeSet<_> = StoreFault::NAMES.into_iter().collect();
        let sentences: BTreeSet<_> = StoreFault::ALL
            .into_iter()
            .map(|fault| fault.to_string())
            .collect();
        let count = StoreFault::ALL.len();
        assert_eq!((names.len(), sentences.len()), (count, count));
        for fault in StoreFault::ALL {
            assert_eq!(StoreFault::of_number(fault.number()), Some(fault));
        }
    }
}
