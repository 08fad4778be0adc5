//! What a file of tests says.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quota::play::{BucketId, Offer};
use crate::rule_tests::moments::{Moment, Wait};
use crate::rule_tests::rates::RateRange;
use crate::rule_tests::watched_path::WatchedPath;
use crate::rules::file::{Diagnostic, Span};
use crate::rules::path::Source;
use crate::rules::reload::Rules;
use crate::settings::Settings;
use crate::simulation::ReservationStep;

/// A file of tests, and the rules that it names.
#[derive(Debug)]
pub struct TestFile {
    /// Its path.
    pub name: String,
    /// The rules of the tests.
    pub rules: Arc<RuleFiles>,
    /// The settings of the service.
    pub(super) settings: Box<Settings>,
    /// The tests, in the order of the file.
    pub tests: Vec<Test>,
    /// Every path that it names, as it was before it was read.
    pub watched: Vec<WatchedPath>,
    /// Warnings about it.
    pub warnings: Vec<Diagnostic>,
}

/// Rules that tests use, and the files that they are from.
#[derive(Debug)]
pub struct RuleFiles {
    /// The files.
    pub(super) sources: Vec<Source>,
    pub(super) rules: Rules,
}

/// One test.
#[derive(Debug)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Its place in the file.
    pub span: Span,
    pub(super) start: Moment,
    pub(super) steps: Vec<Step>,
}

/// One step of a test.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) span: Span,
    pub(super) action: Action,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum Action {
    /// Sends requests.
    Ask(Box<Ask>),
    /// Plays proxies against the quota service.
    Quota(Box<QuotaStep>),
    /// Moves the clock forward by so many microseconds.
    After(u64),
    /// Sets the clock.
    At(Moment),
    /// Changes the rules.
    Reload(Arc<RuleFiles>),
    /// Forgets the buckets of a descriptor.
    Reset {
        domain: String,
        entries: Vec<(String, String)>,
    },
}

/// Requests that are all the same.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) request: Request,
    pub(super) times: u32,
    pub(super) every_us: u64,
    pub(super) expected: Expected,
}

/// Proxies that offer requests to one bucket.
#[derive(Debug)]
pub(super) struct QuotaStep {
    pub(super) id: BucketId,
    /// The id's entries, in the order of the file.
    pub(super) entries: Vec<(String, String)>,
    pub(super) offers: Vec<Offer>,
    /// How long, in steps of the play.
    pub(super) steps: u64,
    /// Whether the service restarts before.
    pub(super) restart: bool,
    pub(super) expected: ExpectedQuota,
}

/// What passes at proxies.
#[derive(Debug, Default)]
pub(super) struct ExpectedQuota {
    /// By the name of the proxy.
    pub(super) passed: Vec<(String, Value<RateRange>)>,
    pub(super) total: Option<Value<RateRange>>,
    pub(super) highest_total: Option<Value<RateRange>>,
    pub(super) abandoned: Option<Value<bool>>,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) domain: String,
    pub(super) descriptors: Vec<Descriptor>,
    /// The hits of descriptors that do not say their own.
    pub(super) hits: Option<u32>,
    pub(super) is_refund: bool,
    /// What it does with a reservation; none for a request of Envoy.
    pub(super) call: Option<Call>,
    /// The message of a request that is written as protobuf JSON.
    pub(super) encoded: Option<Vec<u8>>,
}

/// A call that is about a reservation.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) step: ReservationStep,
}

/// A descriptor of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Descriptor {
    pub(super) entries: Vec<(String, String)>,
    pub(super) hits: Option<u32>,
    pub(super) limit: Option<Override>,
}

/// A limit that a request carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Override {
    pub(super) requests_per_unit: u32,
    pub(super) unit: tollgate_limiter::Unit,
    pub(super) unit_multiplier: Option<u32>,
}

/// A value that is expected, and its place.
#[derive(Clone, Debug)]
pub(super) struct Value<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// What the answers are to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) admitted: Option<Value<u32>>,
    pub(super) answer: ExpectedStatus,
    pub(super) retry_after: Option<Value<Wait>>,
    /// None for a header that is to be absent.
    pub(super) headers: BTreeMap<String, Value<Option<String>>>,
    pub(super) body: Option<Value<String>>,
    pub(super) reservation: Option<Value<&'static str>>,
    pub(super) reserved: Option<Value<u64>>,
    pub(super) committed: Option<Value<u64>>,
    pub(super) descriptors: Option<Value<Vec<ExpectedStatus>>>,
}

/// What an answer, or a part of it about one descriptor, is to be.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedStatus {
    pub(super) verdict: Option<Value<&'static str>>,
    pub(super) remaining: Option<Value<u32>>,
    pub(super) rule: Option<Value<String>>,
    pub(super) reset_after: Option<Value<Wait>>,
}
