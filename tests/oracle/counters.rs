//! Holds what both services counted against each other: the counters in Redis, and the metrics.
//!
//! How: each case has a domain of its own, so a counter or a metric that differs belongs to one
//! case.
//!
//! What it deliberately does not do: compare latencies, pools, or what only one of them measures.

use std::collections::BTreeMap;

use crate::oracle::case::Case;
use crate::oracle::differences::met;
use crate::oracle::run::{Services, TOLLGATES};

/// How the metrics begin that are compared, behind which come the names of what is counted.
const OF_LIMITS: &str = "ratelimit_service_rate_limit_";

/// An unknown domain, asked for to see that the reference's metrics are complete.
pub(crate) const MARKER: &str = "marker";

/// Windows of a second and of a minute may be over, and their counters expired, before they are
/// compared.
const SHORT_WINDOW_S: u64 = 60;

/// Above this length, in bytes without prefix and second, tollgate does not use the reference's
/// name of a counter.
pub(crate) const NAME_BYTES_MAX: usize = 512;

/// The prefixes of the counters of the reference, and of tollgate under the reference's names.
pub(crate) const REFERENCE_PREFIX: &str = "r:";
pub(crate) const TOLLGATE_PREFIX: &str = "t:";

/// What was counted, by its name.
pub(crate) type Counted = BTreeMap<String, u64>;

/// Takes a case's number, the number of the tollgate, what was compared, and what differs.
pub(crate) type Differs<'d> = dyn FnMut(usize, usize, What, String) + 'd;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    Counters,
    Metrics,
}

/// Compares the counters in Redis of the reference and of the tollgate that uses its names.
pub(crate) fn compare(services: &Services, cases: &[Case], differs: &mut Differs<'_>) {
    let lasting = |prefix| {
        let mut counters = in_redis(services, prefix);
        counters.retain(|name, _| window_of(name) < services.begun_s - SHORT_WINDOW_S);
        by_case(counters, cases.len(), number_of_counter)
    };
    let (there, here) = (lasting(REFERENCE_PREFIX), lasting(TOLLGATE_PREFIX));
    for (number, (mut there, here)) in there.into_iter().zip(here).enumerate() {
        let counters = there.len();
        there.retain(|name, count| *count > 0 || here.contains_key(name));
        if there.len() < counters {
            met("looks-create-nothing");
        }
        there.retain(|name, _| {
            // Without the second, which the reference appends.
            let (text, _) = name.rsplit_once('_').unwrap();
            let long = text.len() + 1 > NAME_BYTES_MAX;
            if long {
                met("long-names");
            }
            !long
        });
        if there != here {
            let text = format!("counters in Redis:\n{}", unlike(&there, &here));
            differs(number, 0, What::Counters, text);
        }
    }
}

/// Compares the metrics of the limits of each case, and those that belong to no case.
pub(crate) fn compare_metrics(services: &Services, cases: &[Case], differs: &mut Differs<'_>) {
    let there = of_limits(&services.metrics_of_the_reference(), reference_names);
    let of_all = |counted: &Counted| -> Counted {
        let of_no_case = |name: &str| number_of_series(name).is_none();
        let series = counted.iter().filter(|(name, _)| of_no_case(name));
        series.map(|(name, count)| (name.clone(), *count)).collect()
    };
    for (tollgate, running) in services.tollgates.iter().enumerate() {
        let text = running.get("/metrics");
        let here = of_limits(&text, |name, labels| {
            labels_by_dots(name, labels).unwrap_or_default()
        });
        assert_eq!(
            (of_all(&there), of_all(&here)),
            services.unknown_domains(),
            "{}",
            TOLLGATES[tollgate].0
        );
        let there = by_case(there.clone(), cases.len(), number_of_series);
        let here = by_case(here, cases.len(), number_of_series);
        for (number, (mut there, mut here)) in there.into_iter().zip(here).enumerate() {
            // A near mark above the limit, by rounding, has the reference subtract more than there
            // is.
            there.retain(|name, count| {
                let wrapped = name.starts_with("near_limit ") && *count > u64::MAX / 2;
                if wrapped {
                    met("near-limit-wraps");
                    here.remove(name);
                }
                !wrapped
            });
            if there != here {
                let text = format!("metrics:\n{}", unlike(&there, &here));
                differs(number, tollgate, What::Metrics, text);
            }
        }
    }
}

/// The series of limits and errors that are above 0, by the name that `named` gives them; those of
/// one name are added up.
fn of_limits(text: &str, named: impl Fn(&str, &[(String, String)]) -> String) -> Counted {
    let mut counted = Counted::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let Some(series) = series.strip_prefix(OF_LIMITS) else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.split("\",").filter_map(|label| {
            let (name, value) = label.split_once("=\"")?;
            let value = value.trim_end_matches('}').trim_end_matches('"');
            Some((name.to_owned(), value.to_owned()))
        });
        let name = named(name, &labels.collect::<Vec<_>>());
        // Go writes large numbers with an exponent; hits are few enough to be exact in a double.
        let count: f64 = count.parse().unwrap();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let count = count as u64;
        if count > 0 && !name.is_empty() {
            *counted.entry(name).or_default() += count;
        }
    }
    counted
}

/// A series of the reference, as words. It has no mapping for unknown domains, which therefore
/// stand in the metric's name.
fn reference_names(name: &str, labels: &[(String, String)]) -> String {
    if let Some(domain) = name.strip_suffix("_domain_not_found") {
        if domain == MARKER {
            return String::new();
        }
        met("unknown-domains-in-names");
        return format!("domain_not_found {domain}");
    }
    // An empty label is none.
    let labels = labels.iter().map(|(_, value)| value.as_str());
    let labels = labels.filter(|value| !value.is_empty());
    [name]
        .into_iter()
        .chain(labels)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The same of tollgate, with its labels as the reference would have them: it writes domain and
/// levels with dots between, and takes them apart at dots, its own or not.
fn labels_by_dots(name: &str, labels: &[(String, String)]) -> Option<String> {
    let texts: Vec<_> = labels
        .iter()
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
        .collect();
    let joined = texts.join(".");
    let parts: Vec<_> = joined.split('.').take(3).collect();
    if parts != texts {
        met("dots-in-labels");
    }
    (!joined.starts_with(MARKER)).then(|| {
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let words = [name].into_iter().chain(parts);
        words.collect::<Vec<_>>().join(" ")
    })
}

/// A series of a case has the domain behind its name, and that begins with the case's number.
fn number_of_series(name: &str) -> Option<usize> {
    number_of_counter(name.split_once(' ')?.1)
}

/// The lines that only one has.
fn unlike(there: &Counted, here: &Counted) -> String {
    let lines = |some: &Counted, other: &Counted, who: &str| {
        let unlike = some
            .iter()
            .filter(|(name, count)| other.get(*name) != Some(count));
        let lines = unlike.map(|(name, count)| format!("  {who} {name} {count}"));
        lines.collect::<Vec<_>>()
    };
    let [there, here] = [
        lines(there, here, "the reference"),
        lines(here, there, "tollgate     "),
    ];
    [there, here].concat().join("\n")
}

fn by_case(counted: Counted, cases: usize, number: impl Fn(&str) -> Option<usize>) -> Vec<Counted> {
    let mut all = vec![Counted::new(); cases];
    for (name, count) in counted {
        if let Some(number) = number(&name) {
            all[number].insert(name, count);
        }
    }
    all
}

/// Counters whose names begin so, without that.
fn in_redis(services: &Services, prefix: &str) -> Counted {
    let names: Vec<String> = services.redis.say(&["KEYS", &format!("{prefix}*")]);
    let counter = |name: String| {
        let count: redis::RedisResult<u64> = services.redis.try_say(&["GET", &name]);
        // tollgate's own keys hold something else.
        Some((name.strip_prefix(prefix)?.to_owned(), count.ok()?))
    };
    names.into_iter().filter_map(counter).collect()
}

/// The second in which the window of a counter began, which ends its name.
fn window_of(name: &str) -> u64 {
    let (_, second) = name.rsplit_once('_').unwrap();
    second.parse().unwrap()
}

/// A counter's name begins with the domain, and that with the case's number.
fn number_of_counter(name: &str) -> Option<usize> {
    name.split_once('-')?.0.parse().ok()
}
