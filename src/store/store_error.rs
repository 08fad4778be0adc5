//! What can be wrong with a shared store, each in a sentence that says what to look at.
//!
//! Why a closed list: an operator at night wants one of a dozen sentences, not a library's words; the breaker and the counters
//! want a number. What a server said word for word goes to the log, once a change.
//!
//! What it deliberately does not do: read a server's errors (`redis/said`), decide what a request is answered (a setting
//! does).

use std::fmt;

/// Why a shared store did not decide.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StoreFault {
    /// There is no connection yet, or none any more.
    NotConnected,
    /// It was asked and did not answer in time.
    TimedOut,
    /// The connection broke while it was asked.
    ConnectionLost,
    /// Its turn did not come in time; it was not asked.
    QueueTimeout,
    /// So many checks wait already that there is no room for more.
    QueueFull,
    /// It was out of order a moment ago and is not asked until a probe succeeds.
    BreakerOpen,
    /// It is a replica, or was made read-only.
    ReadOnly,
    /// It reads its data set from disk.
    Loading,
    /// It cannot write to its disk and was told to refuse writes then.
    CannotPersist,
    /// It has no memory left.
    OutOfMemory,
    /// Another script keeps it from answering.
    Busy,
    /// Its cluster does not serve, or has no such slot here.
    ClusterDown,
    /// It does not know us, or does not allow what we ask.
    AccessDenied,
    /// It said something that we do not understand.
    UnexpectedReply,
    /// What lies where a bucket should be is none.
    InvalidBucket,
}

// === impl StoreFault ===

impl StoreFault {
    /// Every fault there is.
    pub const ALL: [Self; 15] = [
        Self::NotConnected,
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
        Self::UnexpectedReply,
        Self::InvalidBucket,
    ];

    /// Its place in [`StoreFault::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Its label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
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
            Self::UnexpectedReply => "not_understood",
            Self::InvalidBucket => "garbled",
        }
    }

    /// Whether what was asked may have been taken all the same: nobody can know.
    pub const fn outcome_unknown(self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::ConnectionLost | Self::UnexpectedReply
        )
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "there is no connection to it; is it running, and reachable from here?",
            Self::TimedOut => {
                "it did not answer in time; what was asked may have been counted; see --store-deadline-ms"
            }
            Self::ConnectionLost => "the connection broke; what was asked may have been counted",
            Self::QueueTimeout => "it is slow, and this check's turn did not come in time; see --store-deadline-ms",
            Self::QueueFull => "too many checks wait for it; add replicas or raise --store-queue-max",
            Self::BreakerOpen => "it was out of order a moment ago and is probed until it answers in time",
            Self::ReadOnly => "it is read-only: a replica, or a primary that was demoted",
            Self::Loading => "it is loading its data set",
            Self::CannotPersist => "it cannot write to its disk and refuses writes (MISCONF)",
            Self::OutOfMemory => "it has no memory left (maxmemory) and evicts nothing",
            Self::Busy => "another script keeps it busy",
            Self::ClusterDown => "its cluster is down or has moved the slot",
            Self::AccessDenied => "it refuses us: look at the user, the password and its ACL",
            Self::UnexpectedReply => "its answer was not understood; its log and ours say more",
            Self::InvalidBucket => {
                "what it holds under the bucket's key is no bucket of this version; use a prefix of our own (CACHE_KEY_PREFIX)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
