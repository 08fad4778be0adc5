//! What a file of tests says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::rule_tests::values::{Moment, RateRange};
use tollgate_engine::pipeline::ApiStep;
use tollgate_engine::quota::play::{BucketId, Offer};
use tollgate_engine::simulation::Config;
use tollgate_rules::file::{Diagnostic, Span};
use tollgate_rules::path::{RulesPath, Source, test_files};
use tollgate_rules::reload::Rules;
use tollgate_system::regular_file::FileStamp;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// A file of tests, and the rules that it names.
#[derive(Debug)]
pub struct TestFile {
    /// Its path.
    pub name: String,
    /// The rules of the tests.
    pub rules: Arc<RuleFiles>,
    /// The settings of the service.
    pub(super) settings: ServiceSettings,
    /// The tests, in the order of the file.
    pub tests: Vec<Test>,
    /// Every path that it names, as it was before it was read.
    pub watched: Vec<WatchedPath>,
    /// Warnings about it.
    pub warnings: Vec<Diagnostic>,
}

/// What tests depend on of the settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// How requests are read and answered.
    pub config: Config,
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
    /// How long proxies keep an assignment of a quota.
    pub quota_ttl_seconds: u32,
}

/// The settings that a file of tests may have.
#[derive(Debug)]
pub struct KnownSettings {
    /// The names of their flags, without dashes before them.
    pub flags: Vec<String>,
    /// The settings without a flag.
    pub defaults: ServiceSettings,
    /// Reads flags, each `--NAME=VALUE`. The error is one line.
    pub read: fn(Vec<String>) -> Result<ServiceSettings, String>,
}

/// Rules that tests use, and the files that they are from.
#[derive(Debug)]
pub struct RuleFiles {
    pub(super) sources: Vec<Source>,
    pub(super) rules: Rules,
}

/// A file or directory that a run uses, and the stamps of its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchedPath {
    /// The path.
    pub path: PathBuf,
    /// The stamps of the rules files and of the files of tests there, or why they cannot be listed.
    stamps: [Result<Vec<FileStamp>, String>; 2],
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

#[derive(Debug)]
pub(super) enum Action {
    Request(Box<RequestStep>),
    /// Plays proxies against the quota service.
    Quota(Box<QuotaStep>),
    /// Moves the clock forward by so many microseconds.
    After(u64),
    At(Moment),
    Reload(Arc<RuleFiles>),
    /// Forgets the buckets of a descriptor.
    Reset(Descriptor),
}

/// Requests that are all the same, but for their numbers.
#[derive(Debug)]
pub(super) struct RequestStep {
    /// The name of the step, in failures.
    pub(super) name: &'static str,
    pub(super) request: RateLimitRequest,
    /// Whether values have the number of the request.
    pub(super) is_numbered: bool,
    /// The id of a reservation, and what the request does with it; none for a request of Envoy.
    pub(super) call: Option<(String, ApiStep)>,
    pub(super) times: u32,
    pub(super) every_us: u64,
    pub(super) expected: Expected,
}

/// A descriptor alone, as text.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) domain: String,
    pub(super) entries: Vec<(String, String)>,
}

/// Proxies that offer requests to one bucket.
#[derive(Debug)]
pub(super) struct QuotaStep {
    pub(super) id: BucketId,
    /// The id in the order of the file.
    pub(super) descriptor: Descriptor,
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
    /// By the name of the field: `passed.PROXY`, `total`, `highest_total`.
    pub(super) rates: Vec<(String, Value<RateRange>)>,
    pub(super) abandoned: Option<Value<bool>>,
}

/// A value that is expected, and its place.
#[derive(Clone, Debug)]
pub(super) struct Value<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// What the answers are to be.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) answer: Vec<Expectation>,
    /// What the last answer is to say of each descriptor.
    pub(super) descriptors: Option<Value<Vec<Vec<Expectation>>>>,
}

/// What one field of an answer is to be, as the text of its value.
#[derive(Debug)]
pub(super) struct Expectation {
    pub(super) field: String,
    pub(super) span: Span,
    /// None for a header that is to be absent.
    pub(super) text: Option<String>,
}

// === impl WatchedPath ===

impl WatchedPath {
    /// The path with the files as they are now.
    pub fn at(path: &Path) -> Self {
        let rules = RulesPath::Path(path.to_owned()).list();
        let stamps = [rules, test_files(path)];
        Self {
            path: path.to_owned(),
            stamps: stamps.map(|stamps| stamps.map_err(|error| error.to_string())),
        }
    }
}
