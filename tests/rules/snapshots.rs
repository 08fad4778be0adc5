//! What the loader makes of the texts below `cases/`, compared with the output beside them.
//!
//! A file holds many cases: the text of each follows a line `--- # name`. A case of several files
//! has a line `--- ## name` before each; they may share a domain unless the case is called `apart`.
//! The output has the diagnostics of each case without snippets (`broken` shows those), then the
//! rules that were read. `WRITE_SNAPSHOTS=1` writes the outputs; read them before you commit them.
//!
//! What it deliberately does not do: match requests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tollgate::rules::file::{Diagnostic, LoadedRules, Report, load};
use tollgate_limiter::{Allowance, Cost, Level, LimitFromRequest, Rule, Values};

use crate::rules::reading::{APART, MERGED, read, source, words};

/// How many cases there are at least: none may be lost when files are moved.
const CASES_MIN: usize = 450;

/// Begins a case, before its name.
const CASE: &str = "--- # ";

/// Begins a file of a case, before its name.
const FILE: &str = "--- ## ";

/// A folder of this test binary.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rules")
        .join(name)
}

/// The YAML files of a folder, in order.
pub(crate) fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    files
}

/// Printed texts that differ from their snapshots.
#[derive(Default)]
pub(crate) struct Differences(Vec<String>);

// === impl Differences ===

impl Differences {
    /// Compares a text with the snapshot at a path, or writes the snapshot.
    pub(crate) fn compare(&mut self, snapshot: &Path, printed: &str) {
        if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
            fs::write(snapshot, printed).unwrap();
        }
        let expected = fs::read_to_string(snapshot).unwrap_or_default();
        if printed != expected {
            let name = snapshot.display();
            self.0
                .push(format!("{name}:\n{printed}\nand not:\n{expected}"));
        }
    }

    /// Panics if a text differed.
    pub(crate) fn assert_none(self) {
        assert!(
            self.0.is_empty(),
            "{}\nWRITE_SNAPSHOTS=1 writes the snapshots; read them before you commit them",
            self.0.join("\n")
        );
    }
}

/// The parts of a text that begin with a line of this prefix and a name.
fn parts<'t>(prefix: &str, text: &'t str) -> Vec<(&'t str, &'t str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.strip_prefix(prefix) {
        let (name, text) = begin.split_once('\n').unwrap();
        // A part may be empty.
        let end = match text.find(&format!("\n{prefix}")) {
            _ if text.starts_with(prefix) => 0,
            Some(before) => before + 1,
            None => text.len(),
        };
        parts.push((name, &text[..end]));
        rest = &text[end..];
    }
    assert_eq!(rest, "");
    parts
}

/// A diagnostic on three lines, and a line for each place that it cites.
fn diagnostic(kind: &str, diagnostic: &Diagnostic) -> String {
    let mut text = format!("{kind}[{}]: {}", diagnostic.code.name(), words(diagnostic));
    for related in &diagnostic.related {
        let file = related.file.as_deref().unwrap_or(&diagnostic.file);
        write!(text, "\n  see {file}:{}", related.span.at).unwrap();
    }
    text + "\n"
}

/// What a case prints.
fn printed(name: &str, text: &str) -> String {
    if !text.starts_with(FILE) {
        // Each text is one file, whose name says nothing.
        return printed_of(&read(text))
            .replace("rules.yaml: ", "")
            .replace("rules.yaml:", "");
    }
    let files: Vec<_> = parts(FILE, text)
        .iter()
        .map(|(name, text)| source(name, text))
        .collect();
    let options = if name.ends_with("apart") {
        APART
    } else {
        MERGED
    };
    printed_of(&load(&files, options))
}

fn printed_of(read: &Result<LoadedRules, Report>) -> String {
    match read {
        Ok(loaded) => printed_rules(loaded),
        Err(report) => {
            let errors = report.errors.iter();
            errors.map(|error| diagnostic("error", error)).collect()
        }
    }
}

/// Warnings, settings of the domains, and rules.
fn printed_rules(loaded: &LoadedRules) -> String {
    let mut text = String::new();
    for warning in &loaded.warnings {
        text.push_str(&diagnostic("warning", warning));
    }
    for domain in loaded.rules.domains() {
        let whole = loaded.rules.all_or_nothing(domain.as_bytes());
        let on_failure = loaded.rules.on_store_failure(domain.as_bytes());
        if let Some(whole) = whole {
            writeln!(text, "{domain}: all_or_nothing={whole}").unwrap();
        }
        if let Some(answer) = on_failure {
            writeln!(text, "{domain}: on_store_failure={}", answer.name()).unwrap();
        }
    }
    for rule in loaded.rules.rules() {
        writeln!(text, "{}", printed_rule(rule)).unwrap();
    }
    if loaded.rules.rules().is_empty() {
        writeln!(text, "no limit in {}", loaded.rules.domains().join(", ")).unwrap();
    }
    text
}

/// Each field of a level that is not the default.
fn print_level(level: &Level, say: &mut dyn FnMut(&str, &dyn std::fmt::Debug)) {
    let Level {
        key: _,
        values,
        ipv6_prefix,
        share_threshold,
        value_to_metric,
    } = level;
    match &**values {
        Values::Any | Values::Text(_) => {}
        Values::Prefixes(prefixes) => {
            let prefixes = prefixes.iter().map(|prefix| format!("{prefix:#}"));
            say("prefixes", &prefixes.collect::<Vec<_>>());
        }
        values => say("values", values),
    }
    if let Some(bits) = ipv6_prefix {
        say("ipv6_prefix", bits);
    }
    for (name, set) in [
        ("share_threshold", share_threshold),
        ("value_to_metric", value_to_metric),
    ] {
        if *set {
            say(name, set);
        }
    }
}

/// A rule on one line: what it allows, then each field that is not the default.
fn printed_rule(rule: &Rule) -> String {
    // A new field does not compile before it is printed here, or named as one that is not.
    let Rule {
        path,
        name,
        allowance: allowed,
        holder_key,
        reserve,
        leases,
        cost,
        budget,
        candidate,
        limit_from_request,
        notify,
        rlqs,
        replaces,
        shadow_mode,
        quota_mode,
        detailed_metric,
        metadata,
        over_limit,
        domain: _,
        plan: _,
        lines: _,
        overriding: _,
        index: _,
        fingerprint: _,
    } = rule;
    let full_name = rule.full_name().replace('\n', "\\n");
    let mut line = format!("{full_name}: {}", allowance(*allowed));
    let mut say = |name: &str, value: &dyn std::fmt::Debug| {
        write!(line, " {name}={value:?}").unwrap();
    };
    for level in path {
        print_level(level, &mut say);
    }
    if !name.is_empty() {
        say("name", name);
    }
    if let Some(key) = holder_key {
        say("holder_key", key);
    }
    if let Some(reserve) = reserve {
        say("reserve", reserve);
    }
    if let Allowance::Limited { limit, .. } = allowed
        && let Some(penalty) = limit.penalty()
    {
        say("penalty", &format_args!("{{{penalty}}}"));
    }
    if !leases {
        say("lease", leases);
    }
    if *cost != Cost::default() {
        say("cost", &format_args!("{cost}"));
    }
    if let Some(budget) = budget {
        say("budget", budget);
    }
    if let Some(candidate) = candidate {
        say(
            "candidate",
            &format_args!("{}", allowance(candidate.allowance)),
        );
        say("holder_of_candidate", &candidate.holder_key);
    }
    if !replaces.is_empty() {
        say("replaces", replaces);
    }
    if *limit_from_request == Some(LimitFromRequest::Replace) {
        say("limit_from_request", &"replace");
    }
    if let Some(shares) = notify {
        say("notify", shares);
    }
    for (name, set) in [
        ("rlqs", rlqs),
        ("shadow_mode", shadow_mode),
        ("quota_mode", quota_mode),
        ("detailed_metric", detailed_metric),
    ] {
        if *set {
            say(name, set);
        }
    }
    if let Some(metadata) = metadata {
        say("metadata", metadata);
    }
    if let Some(over_limit) = over_limit {
        say("over_limit", over_limit);
    }
    line
}

/// What a rule allows.
fn allowance(allowance: Allowance) -> String {
    let Allowance::Limited { limit, algorithm } = allowance else {
        return "unlimited".to_owned();
    };
    let seconds = limit.window().as_us() / 1_000_000;
    let mut text = format!(
        "{} {} per {} ({seconds} s)",
        algorithm.name(),
        limit.requests(),
        limit.describe_window()
    );
    if limit.burst() != limit.requests() {
        write!(text, " burst={}", limit.burst()).unwrap();
    }
    if let Some(segments) = limit.segments() {
        write!(text, " segments={segments}").unwrap();
    }
    if let Some(count_refused) = limit.count_refused() {
        let (field, value) = count_refused.field();
        write!(text, " {field}={value}").unwrap();
    }
    text
}

#[test]
fn every_case_is_read_as_its_snapshot_says() {
    let mut count = 0;
    let mut differences = Differences::default();
    for path in yaml_files(&folder("cases")) {
        let file = fs::read_to_string(&path).unwrap();
        let mut output = String::new();
        for (name, text) in parts(CASE, &file) {
            count += 1;
            write!(output, "{CASE}{name}\n{}", printed(name, text)).unwrap();
        }
        differences.compare(&path.with_extension("txt"), &output);
    }
    differences.assert_none();
    assert!(count >= CASES_MIN, "{count} cases");
}
