//! Runs cases: starts both services on one Redis, sends each request to all of them at once, and
//! compares.
//!
//! How: the cases of a batch share the processes, each under a domain of its own. Of tollgate there
//! are three: on the same Redis under the reference's counter names, on it under its own, and in
//! memory. Nothing differs because time passes: an answer depends on the second in which it is
//! made, so a case in which a second begins while a request is under way is run again.
//!
//! What it deliberately does not do: reload, or share a counter between the services. Each has a
//! prefix of its own, so that their counters can be compared as well.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::clock::{Clock as _, SystemClock};
use tollgate_test_support::grpc_client::{
    RateLimitRequest, RateLimitServiceClient, channel, descriptor, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;

use crate::oracle::answers::{self, Answer};
use crate::oracle::case::{Case, Domain};
use crate::oracle::counters::{
    self, Counted, MARKER, NAME_BYTES_MAX, REFERENCE_PREFIX, TOLLGATE_PREFIX, What,
};
use crate::oracle::differences::met;
use crate::oracle::model::{self, Counter};
use crate::oracle::reference::{Reference, sorted_lines};

/// How both services are set up.
#[allow(clippy::struct_excessive_bools)] // each is a variable
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    pub(crate) headers: bool,
    pub(crate) metadata: bool,
    pub(crate) near_limit_ratio: &'static str,
}

/// What batches take turns with.
pub(crate) const SETUPS: [Setup; 4] = [
    Setup {
        shadow_mode: false,
        quota_mode: false,
        headers: true,
        metadata: true,
        near_limit_ratio: "0.8",
    },
    Setup {
        shadow_mode: false,
        quota_mode: false,
        headers: false,
        metadata: false,
        near_limit_ratio: "0.5",
    },
    Setup {
        shadow_mode: true,
        quota_mode: false,
        headers: true,
        metadata: false,
        near_limit_ratio: "0.9",
    },
    Setup {
        shadow_mode: false,
        quota_mode: true,
        headers: true,
        metadata: true,
        near_limit_ratio: "1",
    },
];

/// The tollgates that are compared with the reference, and the variables by which they differ. The
/// first counts under the reference's names.
pub(crate) const TOLLGATES: [(&str, &[(&str, &str)]); 3] = [
    (
        "tollgate under the reference's keys",
        &[
            ("TOLLGATE_STORE_KEYS", "reference"),
            ("CACHE_KEY_PREFIX", TOLLGATE_PREFIX),
        ],
    ),
    ("tollgate under its own keys", &[("CACHE_KEY_PREFIX", "o:")]),
    ("tollgate in memory", &[("REDIS_URL", "")]),
];

/// What came of a case.
pub(crate) enum Outcome {
    /// So many requests were compared.
    Agreed(usize),
    /// A second began while a request was under way: run it again.
    Crossed,
    Differs(String),
}

/// Both services, running.
pub(crate) struct Services {
    setup: Setup,
    pub(crate) redis: RedisServer,
    pub(crate) reference: Reference,
    pub(crate) tollgates: Vec<Tollgate>,
    /// The second in which it was started.
    pub(crate) begun_s: u64,
    /// Requests for an unknown domain so far, and their descriptors.
    unknown: Cell<(u64, u64)>,
    _rules: TempDir,
}

/// What is known of a case that has run.
struct Ran {
    outcome: Outcome,
    /// Which tollgates counted as the reference did to the end.
    comparable: [bool; TOLLGATES.len()],
    /// Whether both services name its metrics alike.
    alike: bool,
}

type Client = RateLimitServiceClient<Channel>;

/// One runtime for all.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// Runs cases: an outcome for each, in order.
pub(crate) fn run(program: &Path, setup: Setup, cases: &[Case]) -> Vec<Outcome> {
    let files = cases.iter().enumerate().map(|(number, case)| {
        let name = format!("case-{number}.yaml");
        (name, case.yaml(&case.domain(number)))
    });
    let services = Services::start(program, setup, files.collect());
    services.hold_rules_to_be_the_same();
    let mut ran = runtime().block_on(services.ask(cases));
    runtime().block_on(services.wait_for_metrics());
    let mut differs = |number: usize, tollgate: usize, what: What, differs: String| {
        let ran: &mut Ran = &mut ran[number];
        let comparable = ran.comparable[tollgate] && (what == What::Counters || ran.alike);
        if comparable && matches!(ran.outcome, Outcome::Agreed(_)) {
            let (name, _) = TOLLGATES[tollgate];
            ran.outcome = Outcome::Differs(format!("{name}: {differs}"));
        }
    };
    counters::compare(&services, cases, &mut differs);
    counters::compare_metrics(&services, cases, &mut differs);
    ran.into_iter().map(|ran| ran.outcome).collect()
}

fn now_s() -> u64 {
    SystemClock::new().now().as_us() / 1_000_000
}

// === impl Services ===

impl Services {
    /// Starts them with these rules files.
    pub(crate) fn start(program: &Path, setup: Setup, files: Vec<(String, String)>) -> Self {
        let rules = tempfile::tempdir().unwrap();
        let folder = rules.path().join("config");
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let begun_s = now_s();
        let redis = RedisServer::start(&[]);
        let root = rules.path().display().to_string();
        let socket = redis.socket().display().to_string();
        let truth = |set: bool| if set { "true" } else { "false" };
        // What both read.
        let variables = [
            ("RUNTIME_ROOT", root.as_str()),
            ("RUNTIME_SUBDIRECTORY", ""),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", &socket),
            ("SHADOW_MODE", truth(setup.shadow_mode)),
            ("QUOTA_MODE", truth(setup.quota_mode)),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", truth(setup.headers)),
            ("RESPONSE_DYNAMIC_METADATA", truth(setup.metadata)),
            ("NEAR_LIMIT_RATIO", setup.near_limit_ratio),
        ];
        let with = |more: &[(&'static str, &'static str)]| {
            let mut all: HashMap<&str, &str> = variables.into_iter().collect();
            all.extend(more.iter().copied());
            all.into_iter()
                .filter(|(name, value)| *name != "REDIS_URL" || !value.is_empty())
                .collect::<Vec<_>>()
        };
        let reference = Reference::start(program, &with(&[("CACHE_KEY_PREFIX", REFERENCE_PREFIX)]));
        let tollgates = TOLLGATES.map(|(_, own)| {
            let shared = [
                // Every refusal is counted, as by the reference; and no busy machine makes a call
                // late.
                ("TOLLGATE_STORE_OVER_LIMIT_CACHE_MS", "0"),
                ("TOLLGATE_STORE_DEADLINE_MS", "30000"),
            ];
            Tollgate::start_at_with(&folder, &with(&[&shared, own].concat()))
        });
        for (tollgate, (_, own)) in tollgates.iter().zip(TOLLGATES) {
            if own.contains(&("REDIS_URL", "")) {
                continue;
            }
            until("the store is up", || {
                match tollgate.metric("tollgate_store_up") {
                    1 => Ok(()),
                    _ => Err(tollgate.said()),
                }
            });
        }
        Self {
            setup,
            redis,
            reference,
            tollgates: tollgates.into(),
            begun_s,
            unknown: Cell::default(),
            _rules: rules,
        }
    }

    /// The limits that each service shows at its admin port.
    fn hold_rules_to_be_the_same(&self) {
        let mut reference = self.reference.rules();
        for line in &mut reference {
            without_unused_number(line);
        }
        reference.sort();
        for tollgate in &self.tollgates {
            let (_, shown) = http(tollgate.admin, "GET", "/rlconfig", "");
            let common = shown.lines().map(in_the_references_words);
            let ours = sorted_lines(&common.collect::<Vec<_>>().join("\n"));
            for (there, here) in reference.iter().zip(&ours) {
                assert_eq!(there, here, "the rules that are shown");
            }
            assert_eq!(reference.len(), ours.len(), "the rules that are shown");
        }
    }

    /// How often each service must have counted an unknown domain: the reference once for each
    /// descriptor, tollgate once a request.
    pub(crate) fn unknown_domains(&self) -> (Counted, Counted) {
        let (requests, descriptors) = self.unknown.get();
        if requests < descriptors {
            met("unknown-domains-counted");
        }
        let counted = |count| {
            let series = ("domain_not_found stranger".to_owned(), count);
            [series].into_iter().filter(|(_, count)| *count > 0)
        };
        (counted(descriptors).collect(), counted(requests).collect())
    }

    pub(crate) fn metrics_of_the_reference(&self) -> String {
        self.reference.metrics()
    }

    /// Waits until the reference shows all that it counted. It passes its counters on one by one,
    /// again and again; what is seen of the second of two requests, one sent after the other was
    /// seen, was passed on in a round that began after both.
    async fn wait_for_metrics(&self) {
        let mut client = RateLimitServiceClient::new(channel(self.reference.grpc).await);
        let asked = || request(MARKER, vec![descriptor(&[("k", "v")])]);
        for time in 1..=3 {
            client.should_rate_limit(asked()).await.unwrap();
            let seen = format!("ratelimit_service_rate_limit_{MARKER}_domain_not_found {time}");
            until(&seen, || {
                self.reference.metrics().lines().any(|line| line == seen)
            });
        }
    }

    async fn ask(&self, cases: &[Case]) -> Vec<Ran> {
        let mut reference = RateLimitServiceClient::new(channel(self.reference.grpc).await);
        let mut tollgates = Vec::new();
        for tollgate in &self.tollgates {
            tollgates.push(RateLimitServiceClient::new(channel(tollgate.grpc).await));
        }
        let mut all = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            let domain = case.domain(number);
            all.push(
                self.ask_case(case, &domain, &mut reference, &mut tollgates)
                    .await,
            );
        }
        all
    }

    async fn ask_case(
        &self,
        case: &Case,
        domain: &str,
        reference: &mut Client,
        tollgates: &mut [Client],
    ) -> Ran {
        let mut comparable = [true; TOLLGATES.len()];
        let mut counters: HashMap<(String, u64), Counter> = HashMap::new();
        // The largest limit by which a counter was over.
        let mut limits_over: HashMap<(String, u64), u32> = HashMap::new();
        let mut compared = 0;
        let mut alike = true;
        let ran = |outcome, comparable, alike| Ran {
            outcome,
            comparable,
            alike,
        };
        for (place, asked) in case.requests.iter().enumerate() {
            let request = Case::request(asked, domain);
            if asked.domain == Domain::Unknown && !asked.descriptors.is_empty() {
                let (requests, descriptors) = self.unknown.get();
                let more = asked.descriptors.len() as u64;
                self.unknown.set((requests + 1, descriptors + more));
            }
            let before_s = now_s();
            let (there, here) = ask_all(reference, tollgates, &request).await;
            if now_s() != before_s {
                return ran(Outcome::Crossed, [false; TOLLGATES.len()], false);
            }
            if let Some(known) = answers::other_rules(case, asked) {
                met(known);
                return ran(Outcome::Agreed(compared), [false; TOLLGATES.len()], false);
            }
            if model::finds_starred_key(case, asked) {
                met("metrics-of-starred-keys");
                alike = false;
            }
            if model::has_long_label(case, asked) {
                met("long-labels");
                alike = false;
            }
            // Where the reference counts together what tollgate counts apart, its own keys end the
            // case.
            let statuses = there.as_ref().map(|answer| answer.statuses.as_slice());
            let statuses = statuses.unwrap_or_default().iter().map(Some);
            let statuses = statuses.chain(std::iter::repeat(None));
            for (counter, status) in model::counters(case, asked).into_iter().zip(statuses) {
                let Some(counter) = counter else { continue };
                let name = (counter.name.clone(), counter.window_start(before_s));
                if let Some(status) = status
                    && let Some(limit) = &status.current_limit
                {
                    let requests = limit.requests_per_unit;
                    let over = limits_over.get(&name);
                    if over.is_some_and(|over| requests > *over) {
                        met("raised-limits");
                        comparable = [comparable[0], false, false];
                    }
                    if answers::is_over(status) {
                        let over = limits_over.entry(name.clone()).or_default();
                        *over = requests.max(*over);
                    }
                }
                let first = counters.entry(name).or_insert_with(|| counter.clone());
                if first.is_apart_from(&counter) {
                    met(shared_counter(first, &counter));
                    // A long name is not the reference's in any of them.
                    let long = domain.len() + 1 + counter.name.len() > NAME_BYTES_MAX;
                    comparable = [comparable[0] && !long, false, false];
                }
            }
            for (at, ours) in here.iter().enumerate().filter(|(at, _)| comparable[*at]) {
                let at_once = answers::At {
                    setup: &self.setup,
                    case,
                    asked,
                    second: before_s,
                };
                if let Err(differs) = answers::compare(&at_once, &there, ours) {
                    let (name, _) = TOLLGATES[at];
                    let text = format!("{name}, request {place}:\n{differs}");
                    return ran(Outcome::Differs(text), comparable, false);
                }
            }
            compared += 1;
        }
        ran(Outcome::Agreed(compared), comparable, alike)
    }
}

/// Why the reference has one counter for both.
fn shared_counter(one: &Counter, other: &Counter) -> &'static str {
    if one.entries != other.entries {
        "joined-counters"
    } else if one.of_request != other.of_request {
        "limits-in-requests"
    } else {
        "no-unit-in-names"
    }
}

/// A line of tollgate's list of limits, without what only it says.
pub(crate) fn in_the_references_words(line: &str) -> String {
    let end = line.find("quota_mode: ").map(|start| {
        let rest = &line[start..];
        start + rest.find(", ").unwrap_or(rest.len())
    });
    line[..end.unwrap_or(line.len())].to_owned()
}

/// The reference shows the `requests_per_unit` of a limit that is unlimited. Nothing uses it.
pub(crate) fn without_unused_number(line: &mut String) {
    const UNLIMITED: &str = "unit=UNKNOWN requests_per_unit=";
    if let Some((name, rest)) = line.split_once(UNLIMITED)
        && let Some((number, modes)) = rest.split_once(',')
        && number != "0"
    {
        met("number-of-unlimited");
        *line = format!("{name}{UNLIMITED}0,{modes}");
    }
}

async fn ask_all(
    reference: &mut Client,
    tollgates: &mut [Client],
    request: &RateLimitRequest,
) -> (Answer, Vec<Answer>) {
    async fn ask(client: &mut Client, request: RateLimitRequest) -> Answer {
        let answer = client.should_rate_limit(request).await;
        answer.map(tonic::Response::into_inner)
    }
    let [first, second, third] = tollgates else {
        unreachable!("there are three")
    };
    let (there, first, second, third) = tokio::join!(
        ask(reference, request.clone()),
        ask(first, request.clone()),
        ask(second, request.clone()),
        ask(third, request.clone()),
    );
    (there, vec![first, second, third])
}
