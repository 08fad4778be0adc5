//! The results as a list of cases, for formats that know nothing else.

use super::session::{FileFailure, Session, TestOutcome};
use super::text::failure_lines;
use crate::rule_tests::LoadFailure;

/// One case.
pub(super) struct Case {
    /// The file of tests.
    pub(super) file: String,
    pub(super) name: String,
    pub(super) outcome: CaseOutcome,
}

/// What became of a case.
pub(super) enum CaseOutcome {
    Passed,
    /// It failed, in lines.
    Failed(Vec<String>),
    /// It could not run, in lines.
    Error(Vec<String>),
}

/// Every test, every file that cannot run, and the coverage if it is to have a minimum.
pub(super) fn cases(session: &Session) -> Vec<Case> {
    let tests = session.tests().map(|(file, test)| Case {
        file: file.file.name.clone(),
        name: test.name.clone(),
        outcome: outcome(&file.file.name, test),
    });
    let files = session.failures.iter().map(|failure| Case {
        file: failure.path.clone(),
        name: "the file can run".to_owned(),
        outcome: CaseOutcome::Error(file_failure_lines(failure)),
    });
    let coverage = session.coverage_min.map(|least| Case {
        file: "coverage".to_owned(),
        name: format!("the tests reach {least}% of the rules"),
        outcome: if session.is_covered() {
            CaseOutcome::Passed
        } else {
            CaseOutcome::Failed(super::text::coverage_lines(session))
        },
    });
    tests.chain(files).chain(coverage).collect()
}

fn outcome(file: &str, test: &TestOutcome) -> CaseOutcome {
    match &test.result {
        Err(error) => CaseOutcome::Error(vec![error.clone()]),
        Ok(result) if result.passed() => CaseOutcome::Passed,
        Ok(result) => {
            let failures = result.failures.iter();
            let mut lines: Vec<_> = failures
                .flat_map(|failure| failure_lines(file, failure))
                .collect();
            if result.failures_omitted > 0 {
                lines.push(format!("and {} more steps failed", result.failures_omitted));
            }
            CaseOutcome::Failed(lines)
        }
    }
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
