//! What the calls of tollgate's API and of Kuadrant's have in common: their caller and durations.

use std::num::NonZeroU32;

use prost_types::Duration as Sent;
use tokio::time::timeout;
use tollgate_http2::grpc;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::api_error::deadline_exceeded;
use crate::pipeline::Pipeline;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// Who made a call, as its metadata says.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    /// When the answer is no longer of use.
    pub(super) deadline: Deadline,
    /// The caller's trace.
    pub(super) parent: Option<TraceParent>,
}

/// An expiry, rounded up to milliseconds. Longer ones than a day are for the pipeline to refuse.
pub(super) fn expiry_ms(sent: &Sent) -> Result<NonZeroU32, &'static str> {
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(sent.seconds), u64::try_from(sent.nanos)) else {
        return Err("is negative; send 1 ms to a day");
    };
    if nanos > 999_999_999 {
        return Err("has a second or more in nanos; send at most 999999999");
    }
    let ms = seconds
        .saturating_mul(1_000)
        .saturating_add(nanos.div_ceil(1_000_000));
    let ms = u32::try_from(ms).unwrap_or(u32::MAX);
    NonZeroU32::new(ms).ok_or("is 0; send 1 ms to a day")
}

// === impl Caller ===

impl Caller {
    pub(super) fn of(metadata: &MetadataMap, pipeline: &Pipeline) -> Self {
        let timeout_us = metadata
            .get("grpc-timeout")
            .and_then(|header| grpc::timeout_us(header.as_bytes()));
        let parent = pipeline
            .is_tracing()
            .then(|| TraceParent::of(metadata.as_ref()));
        Self {
            deadline: pipeline.deadline_after(timeout_us),
            parent: parent.flatten(),
        }
    }

    /// Carries out a call until the deadline. A reservation whose result comes later is withdrawn,
    /// because nobody would settle it.
    pub(super) async fn within<T>(
        self,
        pipeline: &Pipeline,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match pipeline.time_until(self.deadline) {
            None => call.await,
            Some(time) => timeout(time, call)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_rounded_up_and_never_negative() {
        let sent = |seconds, nanos| Sent { seconds, nanos };
        for (seconds, nanos, ms) in [
            (60, 0, 60_000),
            (0, 1, 1),
            (1, 500_000_001, 1_501),
            (315_576_000_000, 0, u32::MAX),
            (i64::MAX, 999_999_999, u32::MAX),
        ] {
            let read = expiry_ms(&sent(seconds, nanos)).map(NonZeroU32::get);
            assert_eq!(read, Ok(ms), "{seconds} {nanos}");
        }
        for (seconds, nanos) in [
            (-1, 0),
            (0, -1),
            (i64::MIN, i32::MIN),
            (0, 0),
            (1, i32::MAX),
        ] {
            assert!(
                expiry_ms(&sent(seconds, nanos)).is_err(),
                "{seconds} {nanos}"
            );
        }
    }
}
