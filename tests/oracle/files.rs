//! Holds tollgate's judgement of a rules file against the reference's: both accept it with the same
//! limits, or both refuse it with the same first line.
//!
//! How: a verdict that differs must have its cause in the case, which says what was written where;
//! texts of YAML errors are each library's own and are not compared.
//!
//! What it deliberately does not do: judge what only tollgate knows.

use tollgate::rules::file::{Diagnostic, LoadedRules, Options, Report, load};
use tollgate::rules::path::Source;
use tollgate_limiter::{Allowance, Rule};

use crate::oracle::case::Case;
use crate::oracle::differences::met;
use crate::oracle::model;
use crate::oracle::reference::Loader;
use crate::oracle::run::without_unused_number;

/// How the reference introduces what its YAML library says.
const OF_YAML: &str = "error loading config file: ";

/// Names that the pinned version does not know.
const OURS: [&str; 8] = [
    "metadata",
    "values",
    "regex",
    "rate_limits",
    "burst",
    "unit_multiplier",
    "all_or_nothing",
    "algorithm",
];

/// The limits of a file that is accepted, or the first line of why it is refused.
type Judged = Result<Vec<String>, String>;

/// What tollgate makes of a file.
pub(crate) fn read(text: &str) -> Result<LoadedRules, Report> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    let apart = Options {
        overlay: None,
        limit_files: None,
        isolate_domains: false,
        merge_domains: false,
    };
    load(&[source], apart)
}

/// Says how the two judgements of a case's file differ, if they do and it is not known why.
pub(crate) fn compare(loader: &mut Loader, case: &Case) -> Result<(), String> {
    let text = case.yaml("d");
    let (there, here) = (limits(loader.read(&text)), read(&text));
    let here = here.map(|loaded| {
        let mut limits: Vec<_> = loaded.rules.rules().iter().map(line).collect();
        limits.sort();
        limits
    });
    let here = here.map_err(|report| {
        // The reference reports the first error that it finds; tollgate all, by place.
        let errors = report.errors.into_iter();
        let first = errors.min_by_key(Diagnostic::reference_order);
        first.unwrap().message
    });
    let alike = match (&there, &here) {
        (Ok(there), Ok(here)) => there == here,
        // What a YAML library says is its own.
        (Err(there), Err(here)) => {
            there == here || there.starts_with(OF_YAML) && here.starts_with(OF_YAML)
        }
        _ => false,
    };
    if alike {
        return Ok(());
    }
    match cause(case, &there, &here) {
        Some(known) => {
            met(known);
            Ok(())
        }
        None => Err(format!("the reference: {there:?}\ntollgate: {here:?}")),
    }
}

/// The limits of a file, without what the reference shows of them and does not use.
fn limits(judged: Judged) -> Judged {
    let mut limits = judged?;
    for line in &mut limits {
        without_unused_number(line);
    }
    limits.sort();
    Ok(limits)
}

/// Which known difference explains the judgements.
fn cause(case: &Case, there: &Judged, here: &Judged) -> Option<&'static str> {
    let holds = |line: &str| lines(case).any(|extra| extra.starts_with(line));
    if holds("<<: {value") {
        return Some("merge-keys");
    }
    let Err(there) = there else { return None };
    if let Some(name) = there
        .strip_prefix("config error, unknown key '")
        .and_then(|rest| rest.strip_suffix('\''))
    {
        // As `{unit:}`: the colon is part of the name there.
        if let Some(name) = name.strip_suffix(':') {
            return (holds(name)).then_some("colons-in-braces");
        }
        let own = OURS.contains(&name) && holds(name);
        return own.then_some(if name == "metadata" {
            "metadata"
        } else {
            "names-of-tollgate"
        });
    }
    if there.starts_with(OF_YAML) && holds("requests_per_unit: 4294967296") {
        return Some("large-numbers");
    }
    let duplicate = there.starts_with("duplicate descriptor composite key ");
    let underscore = case.nodes().iter().any(|node| node.key.contains('_'));
    if duplicate && (underscore || holds("descriptors: [{key: c, value: d")) {
        return Some("joined-duplicates");
    }
    let said_of_values = [
        "config error, key is not of type string: ",
        "config error, yaml file contains list of type other than map: ",
    ];
    if let Err(here) = here {
        let same = |said: &&str| there.starts_with(*said) && here.starts_with(*said);
        if said_of_values.iter().any(same) {
            return Some("values-in-messages");
        }
        let later = there.replace("(ending with '*')", "(containing '*')");
        return (later == *here).then_some("inner-stars-shared");
    }
    if there.starts_with(OF_YAML) && holds("rate_limit: {unit: [day], unit: hour") {
        return Some("names-twice");
    }
    // A value in an extra line makes an inner star of one in the key.
    let inner = case.nodes().iter().any(|node| {
        node.share_threshold && (model::has_inner_star(node) || node.key.contains('*'))
    });
    let sharing = there.starts_with("share_threshold can only be used");
    (sharing && (inner || holds("share_threshold"))).then_some("inner-stars-shared")
}

/// The raw lines of a case.
fn lines(case: &Case) -> impl Iterator<Item = &'static str> {
    let of_nodes = case.nodes().into_iter().flat_map(|node| {
        let limit = node.limit.iter().flat_map(|limit| &limit.extra);
        node.extra.iter().chain(limit)
    });
    of_nodes.chain(&case.extra).copied()
}

/// A limit as the reference shows it.
fn line(rule: &Rule) -> String {
    let (unit, requests) = match rule.allowance {
        Allowance::Unlimited => ("UNKNOWN".to_owned(), 0),
        Allowance::Limited { limit, .. } => {
            let unit = limit.unit().unwrap().name().to_ascii_uppercase();
            (unit, limit.requests())
        }
    };
    format!(
        "{}: unit={unit} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
        rule.full_name(),
        rule.shadow_mode,
        rule.quota_mode
    )
}
