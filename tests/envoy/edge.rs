//! A tollgate in the test's process with a clock that stands, a real Envoy in front of it, and a
//! client of that Envoy.
//!
//! Why: no window turns, and every number is exact.

use tokio::runtime::{Builder, Runtime};
use tollgate_test_support::envoy_process::{Counts, Envoy, OnError, OwnHeaders};
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::in_process::{START, Service};
use tollgate_test_support::polling::until;

/// The value of x-key, unless a test sends another one.
const KEY: &str = "a";

pub(crate) const DAY_SECONDS: u64 = 86_400;

pub(crate) struct Edge {
    pub(crate) caller: HttpConnection,
    pub(crate) envoy: Envoy,
    service: Service,
    _runtime: Runtime,
}

// === impl Edge ===

impl Edge {
    /// Starts it with rules and further arguments. `own` says whether Envoy adds headers.
    pub(crate) fn start(rules: &str, arguments: &[&str], own: OwnHeaders) -> Self {
        let runtime = runtime();
        let service = runtime.block_on(Service::start(rules, arguments));
        let envoy = Envoy::asking_at(&[service.grpc], OnError::Deny, own);
        Self {
            caller: HttpConnection::open(envoy.edge),
            envoy,
            service,
            _runtime: runtime,
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> HttpResponse {
        self.caller.get(path, KEY.as_bytes())
    }

    /// Waits for calls that Envoy sends without awaiting the answer.
    pub(crate) fn wait_for_metric(&self, series: &str, value: u64) {
        until(series, || match self.service.metric(series) {
            metric if metric >= value => Ok(()),
            metric => Err(metric),
        });
        assert_eq!(self.service.metric(series), value, "{series}");
    }

    /// Asserts Envoy's counters, without errors.
    pub(crate) fn assert_counts(&self, ok: u64, over_limit: u64) {
        let expected = Counts {
            ok,
            over_limit,
            ..Counts::default()
        };
        assert_eq!(self.envoy.counts(), expected);
    }
}

/// A runtime for a service in the test's process.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(2).enable_all();
    builder.build().expect("a runtime")
}

/// Seconds from the clock's time to the end of an aligned window, rounded up.
pub(crate) fn until_the_end_of(window_seconds: u64) -> u64 {
    let window_us = window_seconds * 1_000_000;
    (window_us - START.as_us() % window_us).div_ceil(1_000_000)
}
