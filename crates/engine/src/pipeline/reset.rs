//! Forgets the buckets of one descriptor, under the rules in use.

use std::sync::MutexGuard;

use tollgate_limiter::{Entry, Hits, PlanBuffer, Request};

use crate::capture::CaptureWriter;
use crate::pipeline::Pipeline;
use crate::pipeline::message::encode_request;
use tollgate_admin_api::{ResetBucket, rule_name};
use tollgate_store::{Deadline, Purpose, StoreError};
use tollgate_system::per_thread::lock;

/// Why no bucket was forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// There are no rules yet.
    #[error("there are no rules yet; try again when they are loaded")]
    NoRules,
    /// The domain has no rules.
    #[error("no rule has the domain {0:?}; GET /limits lists the domains")]
    UnknownDomain(String),
    /// No rule with a limit matches the descriptor.
    #[error(
        "no rule with a limit matches this descriptor; `tollgate explain` says which entry does not match"
    )]
    NoLimit,
    /// The descriptor exceeds a bound.
    #[error("{0}")]
    Excess(String),
    /// The store did not do it. Some buckets may be forgotten.
    #[error("the reset failed, or its result is unknown: {0}; reset again")]
    Store(#[from] StoreError),
}

impl Pipeline {
    /// Forgets the buckets of all limits of one descriptor. The descriptor is that of a request:
    /// hits that were taken in advance, and denials that are remembered, are forgotten too.
    ///
    /// # Errors
    ///
    /// When no limit applies to the descriptor, or the store fails.
    pub async fn reset(
        &self,
        domain: &str,
        entries: &[(String, String)],
    ) -> Result<Vec<ResetBucket>, ResetError> {
        let entries_max = self.config.entries_max;
        if entries.len() > entries_max {
            return Err(ResetError::Excess(format!(
                "the descriptor has more than {entries_max} entries (--entries-max)"
            )));
        }
        let generation = self.current_rules().ok_or(ResetError::NoRules)?;
        let mut request = Request::new(domain.as_bytes());
        let plan_entries = entries.iter().map(|(key, value)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        });
        // Hits of 0 only look.
        request.push_descriptor(plan_entries, Hits::PEEK, None);
        let plan = self.plan_request(PlanBuffer::default(), &generation.rules, &request);
        if !plan.domain_known() {
            return Err(ResetError::UnknownDomain(domain.to_owned()));
        }
        if plan.matching_budget_exceeded() {
            return Err(ResetError::Excess(
                "matching the descriptor takes more steps than a request may take".to_owned(),
            ));
        }
        if plan.checks().is_empty() {
            return Err(ResetError::NoLimit);
        }
        let rules = plan.planned_checks().map(|planned| planned.origin.rule());
        let rules: Vec<String> = rules
            .map(|rule| rule.map_or_else(String::new, rule_name))
            .collect();
        let captured = self.reset_capture().begin_reset(self.clock.uptime_us());
        let (checks, purpose) = (plan.checks().to_vec(), Purpose::Reset);
        let reset = self.store.ask(checks, Deadline::NEVER, purpose).await;
        if let Some(captured) = captured {
            // A replay repeats a reset as a whole, so one that failed in part is left out.
            let done = reset.as_ref().ok();
            let done = done.filter(|reset| reset.answers.iter().all(Result::is_ok));
            let stamps = done.map_or(&[][..], |reset| &reset.stamps);
            let message = encode_request(&request, |_| None);
            self.reset_capture().end_reset(captured, &message, stamps);
        }
        let resets = rules.into_iter().zip(reset?.answers);
        let resets = resets.map(|(rule, answer)| {
            let existed = answer?.used_before > 0;
            Ok(ResetBucket { rule, existed })
        });
        resets.collect()
    }

    fn reset_capture(&self) -> MutexGuard<'_, CaptureWriter> {
        lock(&self.reset_capture)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message as _;
    use tollgate_limiter::Timestamp;

    use super::*;
    use crate::capture::{Buffer, RecordingOptions};
    use crate::decisions::Decisions;
    use crate::pipeline::{Config, Generations, Parts};
    use crate::top_keys::TopKeys;
    use tollgate_rules::file::{Options, load};
    use tollgate_rules::path::Source;
    use tollgate_rules::reload::Rules;
    use tollgate_store::{Setup, SharedSettings, Worker, memory};
    use tollgate_system::clock::{Clock, ManualClock};
    use tollgate_system::keyed_hash::KeyedHash;
    use tollgate_telemetry::metrics::Metrics;
    use tollgate_wire::proto::tollgate::recording::v1::Item;
    use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;

    /// A descriptor with limits in both partitions.
    fn rules() -> String {
        let limit = |requests: u32| {
            format!("{{ unit: hour, requests_per_unit: {requests}, name: l{requests} }}")
        };
        let limits: Vec<_> = (1..=16).map(limit).collect();
        let limits = limits.join(", ");
        format!("domain: d\ndescriptors: [{{ key: k, rate_limits: [{limits}] }}]\n")
    }

    /// A pipeline over two partitions, and their workers.
    fn pipeline() -> (Pipeline, Vec<Worker>) {
        let metrics = Arc::new(Metrics::new().unwrap());
        let manual = ManualClock::at(Timestamp::from_seconds(1_700_006_410));
        let clock: Arc<dyn Clock> = Arc::new(manual);
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules(),
        };
        generations.take(Some(Ok(Rules {
            loaded: load(&[source], Options::default()).unwrap(),
            sources: 1,
            hash: 1,
        })));
        let decisions = Decisions::alone(&clock, 0).unwrap();
        let setup = Setup {
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            memory: memory::MemoryLimits {
                partitions: 2,
                queue_checks_max: 16_384,
                memory_max: 64 << 20,
                when_full: memory::WhenFull::Share,
            },
            recorder: Some(Arc::<crate::capture::Capture>::clone(decisions.capture())),
        };
        let settings = SharedSettings::default();
        let (store, workers) = memory::BACKEND.build(&settings, &setup).unwrap();
        let parts = Parts {
            generations,
            store,
            decisions,
            hash: KeyedHash::with_secret([7; 16]),
            traces: None,
            top_keys: TopKeys::of_one_thread(&clock, &metrics),
            metrics,
            clock,
        };
        (Pipeline::new(parts, Config::default()), workers)
    }

    /// The resets among the items of a recording.
    fn resets(mut items: &[u8]) -> usize {
        let mut resets = 0;
        while !items.is_empty() {
            let item = Item::decode_length_delimited(&mut items).unwrap();
            resets += usize::from(matches!(item.item, Some(Kind::Reset(_))));
        }
        resets
    }

    #[tokio::test]
    async fn a_reset_that_fails_in_one_partition_is_an_error_and_not_recorded() {
        for failing in [None, Some(0), Some(1)] {
            let (pipeline, mut workers) = pipeline();
            if let Some(number) = failing {
                drop(workers.remove(number));
            }
            for worker in workers {
                tokio::spawn(worker);
            }
            let capture = pipeline.decisions.capture();
            let options = RecordingOptions {
                sampling: None,
                per_second_max: None,
            };
            let mut recording = capture.record(options).unwrap();
            let entries = [("k".to_owned(), "v".to_owned())];
            let reset = pipeline.reset("d", &entries).await;
            assert_eq!(reset.is_err(), failing.is_some(), "{failing:?}: {reset:?}");
            let window = recording.window();
            let bytes: Vec<_> = window.buffers.iter().map(Buffer::bytes).collect();
            let expected = usize::from(failing.is_none());
            assert_eq!(resets(&bytes.concat()), expected, "{failing:?}");
        }
    }
}
