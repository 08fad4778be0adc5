//! The results as text, as `cargo test` has them.

use super::session::{Session, TestOutcome};
use crate::cli::check_format::stderr_is_coloured;
use crate::rule_tests::{Failure, LoadFailure};

/// How many rules that no test reached are listed.
const UNREACHED_MAX: usize = 50;

/// Prints the results. Errors of files go to stderr.
pub(super) fn print(session: &Session, coverage_min: Option<f64>) {
    print_file_failures(session);
    for (file, test) in session.tests() {
        let result = if test.passed() { "ok" } else { "FAILED" };
        print_line!("test {}: {} ... {result}", file.file.name, test.name);
    }
    let failed: Vec<_> = session.tests().filter(|(_, test)| !test.passed()).collect();
    if !failed.is_empty() {
        print_line!("\nfailures:");
        for (file, test) in &failed {
            print_line!("\n---- {}: {} ----", file.file.name, test.name);
            print_failures(&file.file.name, test);
        }
    }
    print_coverage(session, coverage_min);
    print_summary(session, coverage_min);
}

/// Prints errors of files, and warnings.
pub(super) fn print_file_failures(session: &Session) {
    for file in &session.files {
        for warning in &file.file.warnings {
            eprintln!("{}\n", warning.render(stderr_is_coloured()));
        }
    }
    for failure in &session.failures {
        match &failure.failure {
            LoadFailure::Read(error) => eprintln!("error: {error}\n"),
            LoadFailure::Reports(reports) => {
                for report in reports {
                    eprintln!("{}\n", report.render(stderr_is_coloured()));
                }
                eprintln!("error: {} cannot run\n", failure.path);
            }
        }
    }
}

fn print_failures(file: &str, test: &TestOutcome) {
    match &test.result {
        Err(error) => print_line!("error: {error}"),
        Ok(result) => {
            for failure in &result.failures {
                for line in failure_lines(file, failure) {
                    print_line!("{line}");
                }
            }
            if result.failures_omitted > 0 {
                print_line!("and {} more steps failed", result.failures_omitted);
            }
        }
    }
}

/// A failure in lines: the step, the differences, the rule.
pub(super) fn failure_lines(file: &str, failure: &Failure) -> Vec<String> {
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
    lines
}

fn print_coverage(session: &Session, coverage_min: Option<f64>) {
    let coverage = &session.coverage;
    if coverage.rules() == 0 {
        return;
    }
    let unreached = coverage.unreached();
    print_line!(
        "\ncoverage: {} of {} rules reached ({:.1}%)",
        coverage.reached(),
        coverage.rules(),
        coverage.percent()
    );
    for rule in unreached.iter().take(UNREACHED_MAX) {
        print_line!(
            "  not reached: {} ({}), {}",
            rule.rule,
            rule.limit,
            rule.file
        );
    }
    if let Some(more) = unreached
        .len()
        .checked_sub(UNREACHED_MAX)
        .filter(|it| *it > 0)
    {
        print_line!("  and {more} more");
    }
    if let Some(least) = coverage_min.filter(|_| !session.is_covered(coverage_min)) {
        print_line!("  the coverage is below {least}% (--coverage-min)");
    }
}

fn print_summary(session: &Session, coverage_min: Option<f64>) {
    let (passed, failed) = session.counts();
    let result = if session.passed(coverage_min) {
        "ok"
    } else {
        "FAILED"
    };
    let files = match session.failures.len() {
        0 => String::new(),
        1 => "; 1 file cannot run".to_owned(),
        many => format!("; {many} files cannot run"),
    };
    print_line!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {} filtered out{files}",
        session.filtered
    );
}
