//! Metrics of buckets: evictions, memory, and checks that could not be decided.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of buckets.
    pub struct BucketMetrics {
        /// Checks that were not decided, by the bound that was met.
        Counter "tollgate_shed_total" by reason {
            shed_mailbox_full = "mailbox_full",
            shed_deadline = "deadline_passed",
            shed_caller_gone = "caller_gone",
            shed_memory_full = "memory_full",
        }

        /// Checks refunded because their all-or-nothing request did not pass.
        Counter "tollgate_given_back_total" => pub given_back;

        /// Bytes that all partitions may use together.
        Gauge "tollgate_memory_max_bytes" => pub memory_max_bytes;

        /// Idle buckets evicted; a new bucket has the same state.
        Counter "tollgate_buckets_freed_total" => pub freed;

        /// Buckets evicted for space before they were idle; none was exhausted.
        Counter "tollgate_buckets_forgotten_total" => pub forgotten;

        /// Checks of keys without space for a bucket, by the answer of --on-memory-full.
        Counter "tollgate_no_room_total" by answer {
            unplaced_shared = "share",
            unplaced_allowed = "allow",
            unplaced_denied = "deny",
        }

        /// Reservations in this process that expired before they were settled, by what became of
        /// their hits.
        Counter "tollgate_reservations_expired_total" by outcome {
            expired_charged = "charge",
            expired_released = "release",
        }

        /// New reservations that this process refused, by the bound that was met.
        Counter "tollgate_reservations_not_kept_total" by reason {
            reservations_without_space = "memory_full",
            reservations_too_many = "too_many",
        }

        /// Records of settled and refused reservations that this process dropped for space before
        /// their expiry.
        Counter "tollgate_reservation_records_dropped_total" => pub records_dropped;
    }
}
