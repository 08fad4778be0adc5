//! The results for other programs: JSON, which `docs/rule-tests.md` describes, JUnit's XML with one
//! suite a file, and the Test Anything Protocol, version 14.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::session::{FileFailure, Session, TestOutcome};
use super::text::{coverage_lines, explained_lines, failed_lines};
use crate::cli::tools::check::diagnostic_json;
use crate::rule_tests::{Failure, LoadFailure, PlayedProxies, PlayedProxy};

/// The results of a run.
pub(super) fn json(session: &Session) -> Value {
    let (passed, failed) = session.counts();
    let tests: Vec<_> = session.tests.iter().map(test_json).collect();
    let invalid: Vec<_> = session.failures.iter().map(file_json).collect();
    let coverage = &session.coverage;
    let unreached = coverage.unreached().into_iter();
    let unreached =
        unreached.map(|rule| json!({"file": rule.file, "rule": rule.rule, "limit": rule.limit}));
    json!({
        "passed": session.passed(),
        "counts": {"passed": passed, "failed": failed, "filtered": session.filtered},
        "tests": tests,
        "invalid_files": invalid,
        "coverage": {
            "rules": coverage.rules(),
            "reached": coverage.reached(),
            "percent": coverage.percent(),
            "minimum": session.coverage_min,
            "unreached": unreached.collect::<Vec<_>>(),
        },
    })
}

fn test_json(test: &TestOutcome) -> Value {
    let result = test.result.as_ref();
    let failures =
        result.map(|result| result.failures.iter().map(failure_json).collect::<Vec<_>>());
    json!({
        "file": test.file,
        "name": test.name,
        "line": test.span.at.line,
        "column": test.span.at.column,
        "passed": test.passed(),
        "requests": result.map_or(0, |result| result.requests),
        "failures": failures.unwrap_or_default(),
        "failures_omitted": result.map_or(0, |result| result.failures_omitted),
        "error": result.err(),
    })
}

fn failure_json(failure: &Failure) -> Value {
    let differences = failure.differences.iter().map(|difference| {
        json!({
            "field": difference.field,
            "line": difference.span.at.line,
            "column": difference.span.at.column,
            "expected": difference.expected,
            "actual": difference.actual,
        })
    });
    json!({
        "step": failure.step,
        "line": failure.span.at.line,
        "column": failure.span.at.column,
        "time": failure.time,
        "action": failure.action,
        "differences": differences.collect::<Vec<_>>(),
        "explain": explained_lines(failure),
        "played": failure.played.as_ref().map(played_json),
    })
}

fn played_json(played: &PlayedProxies) -> Value {
    let total = &played.total;
    let proxy = |proxy: &PlayedProxy| json!({ "name": proxy.name, "offered": proxy.offered, "passed": proxy.passed });
    json!({
        "proxies": played.proxies.iter().map(proxy).collect::<Vec<_>>(),
        "total": { "offered": total.offered, "passed": total.passed },
    })
}

fn file_json(failure: &FileFailure) -> Value {
    let (message, diagnostics) = match &failure.failure {
        LoadFailure::Read(error) => (Some(error.to_string()), Vec::new()),
        LoadFailure::Reports { reports, .. } => {
            let diagnostics = reports.iter().flat_map(|report| report.diagnostics());
            (None, diagnostics.map(diagnostic_json).collect())
        }
    };
    json!({"file": failure.path, "message": message, "diagnostics": diagnostics})
}

/// The document of JUnit.
pub(super) fn junit(session: &Session) -> String {
    let cases = cases(session);
    let (failures, errors) = counts(&cases);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let tests = cases.len();
    // A String takes everything that is written to it.
    let _ = writeln!(
        xml,
        "<testsuites name=\"tollgate test\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">"
    );
    for suite in cases.chunk_by(|one, next| one.file == next.file) {
        let (failures, errors) = counts(suite);
        let name = suite.first().map_or("", |case| case.file.as_str());
        let (name, tests) = (xml_escaped(name), suite.len());
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">"
        );
        for case in suite {
            write_case(&mut xml, case);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>");
    xml
}

/// How many cases failed, and how many could not run.
fn counts(cases: &[Case]) -> (usize, usize) {
    let elements = || cases.iter().filter_map(|case| case.problem.as_ref());
    let count = |of: &str| elements().filter(|(element, _)| *element == of).count();
    (count("failure"), count("error"))
}

fn write_case(xml: &mut String, case: &Case) {
    let (name, file) = (xml_escaped(&case.name), xml_escaped(&case.file));
    let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{file}\"");
    let Some((element, lines)) = &case.problem else {
        xml.push_str("/>\n");
        return;
    };
    let message = xml_escaped(lines.first().map_or("", String::as_str));
    let text = xml_escaped(&lines.join("\n"));
    let _ = writeln!(
        xml,
        ">\n      <{element} message=\"{message}\">{text}</{element}>\n    </testcase>"
    );
}

/// Text as XML has it. Characters that XML cannot have are replaced.
fn xml_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(char),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            char => escaped.push(char),
        }
    }
    escaped
}

/// The document of the Test Anything Protocol.
pub(super) fn tap(session: &Session) -> String {
    let cases = cases(session);
    let mut lines = vec!["TAP version 14".to_owned(), format!("1..{}", cases.len())];
    for (number, case) in (1..).zip(&cases) {
        let name = tap_escaped(&format!("{}: {}", case.file, case.name));
        let Some((_, why)) = &case.problem else {
            lines.push(format!("ok {number} - {name}"));
            continue;
        };
        lines.push(format!("not ok {number} - {name}"));
        lines.extend(["  ---", "  message:"].map(str::to_owned));
        // A JSON string is a YAML string.
        let why = why.iter().map(|line| Value::from(line.as_str()));
        lines.extend(why.map(|line| format!("    - {line}")));
        lines.push("  ...".to_owned());
    }
    lines.join("\n")
}

/// A description on one line, in which `#` begins no directive.
fn tap_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' | '#' => escaped.extend(['\\', char]),
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}

/// One case.
struct Case {
    /// The file of tests.
    file: String,
    name: String,
    /// Why it did not pass, in lines, as an element of JUnit: `failure`, or `error` if it could not
    /// run.
    problem: Option<(&'static str, Vec<String>)>,
}

/// Every test, every file that cannot run, and the coverage if it is to have a minimum.
fn cases(session: &Session) -> Vec<Case> {
    let tests = session.tests.iter().map(|test| Case {
        file: test.file.clone(),
        name: test.name.clone(),
        problem: match &test.result {
            Err(error) => Some(("error", vec![error.clone()])),
            Ok(result) if result.passed() => None,
            Ok(result) => Some(("failure", failed_lines(&test.file, result))),
        },
    });
    let files = session.failures.iter().map(|failure| Case {
        file: failure.path.clone(),
        name: "the file can run".to_owned(),
        problem: Some(("error", file_failure_lines(failure))),
    });
    let coverage = session.coverage_min.map(|least| Case {
        file: "coverage".to_owned(),
        name: format!("the tests reach {least}% of the rules"),
        problem: (!session.is_covered()).then(|| ("failure", coverage_lines(session))),
    });
    tests.chain(files).chain(coverage).collect()
}

/// Why a file cannot run, in lines.
fn file_failure_lines(failure: &FileFailure) -> Vec<String> {
    let text = match &failure.failure {
        LoadFailure::Read(error) => error.to_string(),
        LoadFailure::Reports { reports, .. } => {
            let reports: Vec<_> = reports.iter().map(|report| report.render(false)).collect();
            reports.join("\n\n")
        }
    };
    text.lines().map(str::to_owned).collect()
}
