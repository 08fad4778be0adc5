//! Spans and metrics, by the OpenTelemetry API. Without the feature `otel` it does nothing.

use crate::Decision;

#[cfg(feature = "otel")]
mod otel {
    use opentelemetry::metrics::{Counter, Histogram};
    use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
    use opentelemetry::{KeyValue, global};

    use super::Decision;
    use crate::Error;

    const SCOPE: &str = "tollgate-limits";

    /// Instruments of a client, of the global providers at its construction.
    pub(crate) struct Telemetry {
        tracer: global::BoxedTracer,
        decisions: Counter<u64>,
        duration: Histogram<f64>,
    }

    /// The span of one call.
    pub(crate) struct CallSpan(global::BoxedSpan);

    impl Telemetry {
        pub(crate) fn new() -> Self {
            let meter = global::meter(SCOPE);
            Self {
                tracer: global::tracer(SCOPE),
                decisions: meter
                    .u64_counter("tollgate.client.decisions")
                    .with_description("Decisions by source and verdict.")
                    .with_unit("{decision}")
                    .build(),
                duration: meter
                    .f64_histogram("tollgate.client.duration")
                    .with_description("Duration of a check by source.")
                    .with_unit("s")
                    .build(),
            }
        }

        pub(crate) fn start(&self, name: &'static str, domain: &str) -> CallSpan {
            let span = self
                .tracer
                .span_builder(name)
                .with_kind(SpanKind::Client)
                .with_attributes([KeyValue::new("tollgate.domain", domain.to_owned())]);
            CallSpan(self.tracer.build(span))
        }

        /// Counts the decision of a check or a reservation.
        pub(crate) fn count(&self, decision: &Decision) {
            self.decisions
                .add(1, &[source(decision), verdict(decision)]);
        }

        /// Records the duration of a check.
        pub(crate) fn record(&self, decision: &Decision) {
            self.duration
                .record(decision.elapsed.as_secs_f64(), &[source(decision)]);
        }
    }

    impl CallSpan {
        pub(crate) fn decided(&mut self, decision: &Decision) {
            self.0.set_attribute(source(decision));
            self.0.set_attribute(verdict(decision));
            if let Some(error) = &decision.error {
                self.failed(error);
            }
        }

        pub(crate) fn failed(&mut self, error: &Error) {
            self.0.set_status(Status::error(error.to_string()));
        }
    }

    fn source(decision: &Decision) -> KeyValue {
        KeyValue::new("tollgate.source", decision.source.as_str())
    }

    fn verdict(decision: &Decision) -> KeyValue {
        KeyValue::new(
            "tollgate.verdict",
            if decision.allowed { "ok" } else { "over_limit" },
        )
    }
}

#[cfg(not(feature = "otel"))]
mod none {
    use super::Decision;
    use crate::Error;

    pub(crate) struct Telemetry;

    pub(crate) struct CallSpan;

    #[allow(clippy::unused_self)] // as with the feature
    impl Telemetry {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn start(&self, _name: &'static str, _domain: &str) -> CallSpan {
            CallSpan
        }

        pub(crate) fn count(&self, _decision: &Decision) {}

        pub(crate) fn record(&self, _decision: &Decision) {}
    }

    #[allow(clippy::unused_self)] // as with the feature
    impl CallSpan {
        pub(crate) fn decided(&mut self, _decision: &Decision) {}

        pub(crate) fn failed(&mut self, _error: &Error) {}
    }
}

#[cfg(not(feature = "otel"))]
pub(crate) use none::Telemetry;
#[cfg(feature = "otel")]
pub(crate) use otel::Telemetry;
