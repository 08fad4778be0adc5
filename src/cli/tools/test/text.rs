//! The results as text, as `cargo test` has them.

use tollgate_limiter::Match;

use super::session::Session;
use crate::cli::output::stderr_is_coloured;
use crate::cli::tools::rule_text::{entries_of, level_lines, rule_lines, table_line};
use crate::rule_tests::{Failure, LoadFailure, PlayedProxies, TestResult};

/// How many rules that no test reached are listed.
const UNREACHED_MAX: usize = 50;

/// Prints the results. Errors of files go to stderr.
pub(super) fn print(session: &Session) {
    print_file_failures(session);
    for test in &session.tests {
        let result = if test.passed() { "ok" } else { "FAILED" };
        print_line!("test {}: {} ... {result}", test.file, test.name);
    }
    let mut failed = session
        .tests
        .iter()
        .filter(|test| !test.passed())
        .peekable();
    if failed.peek().is_some() {
        print_line!("\nfailures:");
        for test in failed {
            print_line!("\n---- {}: {} ----", test.file, test.name);
            match &test.result {
                Err(error) => print_line!("error: {error}"),
                Ok(result) => print_line!("{}", failed_lines(&test.file, result).join("\n")),
            }
        }
    }
    let coverage = coverage_lines(session);
    if !coverage.is_empty() {
        print_line!("\n{}", coverage.join("\n"));
    }
    print_summary(session);
}

/// Prints errors of files, and warnings.
fn print_file_failures(session: &Session) {
    for warning in &session.warnings {
        eprintln!("{}\n", warning.render(stderr_is_coloured()));
    }
    for failure in &session.failures {
        match &failure.failure {
            LoadFailure::Read(error) => eprintln!("error: {error}\n"),
            LoadFailure::Reports { reports, .. } => {
                for report in reports {
                    eprintln!("{}\n", report.render(stderr_is_coloured()));
                }
                eprintln!("error: {} cannot run\n", failure.path);
            }
        }
    }
}

/// The failures of a test in lines.
pub(super) fn failed_lines(file: &str, result: &TestResult) -> Vec<String> {
    let failures = result.failures.iter();
    let mut lines: Vec<_> = failures.flat_map(|it| failure_lines(file, it)).collect();
    if result.failures_omitted > 0 {
        lines.push(format!("and {} more steps failed", result.failures_omitted));
    }
    lines
}

/// A failure in lines: the step, the differences, the rule.
fn failure_lines(file: &str, failure: &Failure) -> Vec<String> {
    let at = failure.span.at;
    let mut lines = vec![
        format!("step {}: {}", failure.step, failure.action),
        format!("  --> {file}:{}:{}", at.line, at.column),
        format!("  at {}", failure.time),
    ];
    for difference in &failure.differences {
        lines.push(format!("  {}:", difference.field));
        lines.push(format!("    expected: {}", difference.expected));
        lines.push(format!("    actual:   {}", difference.actual));
    }
    if let Some(played) = &failure.played {
        lines.push("  requests a second:".to_owned());
        lines.extend(played_lines(played));
    }
    let explained = explained_lines(failure);
    if !explained.is_empty() {
        lines.push("  explain:".to_owned());
        lines.extend(explained.into_iter().map(|line| format!("    {line}")));
    }
    lines
}

/// What proxies offered and what passed, as a table.
fn played_lines(played: &PlayedProxies) -> Vec<String> {
    let heads = [("proxy", "offered", "passed")];
    let proxies = played.proxies.iter().chain([&played.total]);
    let rows = proxies.map(|one| (&*one.name, &*one.offered, &*one.passed));
    let rows: Vec<_> = heads.into_iter().chain(rows).collect();
    let width = |of: fn(&(&str, &str, &str)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (names, offers, passes) = (
        width(|row| row.0.chars().count()),
        width(|row| row.1.len()),
        width(|row| row.2.len()),
    );
    let line = |(name, offered, passed): &(&str, &str, &str)| {
        format!("    {name:names$}  {offered:>offers$}  {passed:>passes$}")
    };
    rows.iter().map(line).collect()
}

/// What `explain` says about the descriptor that decided: its rules, or why it has none.
pub(super) fn explained_lines(failure: &Failure) -> Vec<String> {
    let Some(explained) = &failure.explained else {
        return Vec::new();
    };
    let (domain, pairs) = (&explained.domain, &explained.entries);
    let entries = entries_of(pairs);
    let (rules, origins) = (&explained.rules.rules, &explained.rules.origins);
    match rules.find(domain.as_bytes(), &entries) {
        Match::Rules(matched) if !matched.rules.is_empty() => {
            let entries = entries.get(..matched.entries).unwrap_or_default();
            let mut lines = Vec::new();
            for rule in &matched.as_applied() {
                lines.extend(rule_lines(rule, entries, origins.of(rule.index)));
            }
            lines.extend(table_line(&matched));
            lines
        }
        Match::Rules(_) | Match::UnknownDomain | Match::None => {
            level_lines(rules, domain, pairs, entries.len())
        }
    }
}

/// The rules that tests reached, in lines. Empty where there are no rules.
pub(super) fn coverage_lines(session: &Session) -> Vec<String> {
    let coverage = &session.coverage;
    if coverage.rules() == 0 {
        return Vec::new();
    }
    let (reached, rules) = (coverage.reached(), coverage.rules());
    let percent = coverage.percent();
    let mut lines = vec![format!(
        "coverage: {reached} of {rules} rules reached ({percent:.1}%)"
    )];
    let unreached = coverage.unreached();
    for rule in unreached.iter().take(UNREACHED_MAX) {
        let (name, limit, file) = (&rule.rule, &rule.limit, &rule.file);
        lines.push(format!("  not reached: {name} ({limit}), {file}"));
    }
    let more = unreached.len().saturating_sub(UNREACHED_MAX);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if let Some(least) = session.coverage_min.filter(|_| !session.is_covered()) {
        lines.push(format!("  the coverage is below {least}% (--coverage-min)"));
    }
    lines
}

fn print_summary(session: &Session) {
    let (passed, failed) = session.counts();
    let result = if session.passed() { "ok" } else { "FAILED" };
    let files = match session.failures.len() {
        0 => String::new(),
        1 => "; 1 file cannot run".to_owned(),
        many => format!("; {many} files cannot run"),
    };
    let filtered = session.filtered;
    print_line!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {filtered} filtered out{files}"
    );
}
