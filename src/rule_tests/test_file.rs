//! What a file of tests says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file_stamp::FileStamp;
use crate::quota::play::{BucketId, Offer};
use crate::rule_tests::values::{Moment, RateRange};
use crate::rules::file::{Diagnostic, Span};
use crate::rules::path::{RulesPath, Source, test_files};
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
    Ask(Box<Ask>),
    /// Plays proxies against the quota service.
    Quota(Box<QuotaStep>),
    /// Moves the clock forward by so many microseconds.
    After(u64),
    At(Moment),
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
    /// By the name of the field: `passed.PROXY`, `total`, `highest_total`.
    pub(super) rates: Vec<(String, Value<RateRange>)>,
    pub(super) abandoned: Option<Value<bool>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) domain: String,
    pub(super) descriptors: Vec<Descriptor>,
    /// The hits of descriptors that do not say their own.
    pub(super) hits: Option<u32>,
    pub(super) is_refund: bool,
    /// The id of a reservation, and what the request does with it; none for a request of Envoy.
    pub(super) call: Option<(String, ReservationStep)>,
    /// The message of a request that is written as protobuf JSON.
    pub(super) encoded: Option<Vec<u8>>,
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
