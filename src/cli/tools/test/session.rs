//! One run of all files of tests.

use std::path::{Path, PathBuf};

use crate::cli::tools::arguments::settings_error;
use crate::rule_tests::{
    self, Coverage, KnownSettings, LoadFailure, ServiceSettings, TestResult, WatchedPath,
};
use crate::rules::file::{Diagnostic, Span};
use crate::rules::path::test_files;
use crate::settings::Settings;

/// The results of one run.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The tests that ran, in order.
    pub(super) tests: Vec<TestOutcome>,
    /// The files that could not be read, in order.
    pub(super) failures: Vec<FileFailure>,
    /// Warnings of the files that could.
    pub(super) warnings: Vec<Diagnostic>,
    pub(super) coverage: Coverage,
    /// The least share of the rules that tests are to reach, in percent.
    pub(super) coverage_min: Option<f64>,
    /// How many tests `--filter` left out.
    pub(super) filtered: usize,
    /// Every path of the run, as it was before it was read.
    pub(super) watched: Vec<WatchedPath>,
}

/// The result of one test.
#[derive(Debug)]
pub(super) struct TestOutcome {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) span: Span,
    /// Or why there was no simulation.
    pub(super) result: Result<TestResult, String>,
}

/// A file that could not be read, or has errors.
#[derive(Debug)]
pub(super) struct FileFailure {
    pub(super) path: String,
    pub(super) failure: LoadFailure,
}

/// The settings of `serve` that a file of tests may have.
pub fn known_settings() -> anyhow::Result<KnownSettings> {
    let read = |flags: Vec<String>| match Settings::from_flags(flags) {
        Ok(settings) => Ok(ServiceSettings {
            merge_domains: settings.rules.merge_domain_config,
            quota_ttl_seconds: settings.quotas.ttl_seconds,
            config: (&settings).into(),
        }),
        Err(error) => Err(settings_error(&error)),
    };
    Ok(KnownSettings {
        flags: Settings::decision_flags(),
        defaults: read(Vec::new()).map_err(anyhow::Error::msg)?,
        read,
    })
}

// === impl Session ===

impl Session {
    /// Runs the tests of these files and directories whose names contain `filter`.
    pub(super) fn run(
        paths: &[PathBuf],
        filter: Option<&str>,
        coverage_min: Option<f64>,
    ) -> anyhow::Result<Self> {
        let known = known_settings()?;
        let mut session = Self {
            coverage_min,
            ..Self::default()
        };
        for path in paths {
            session.watched.push(WatchedPath::at(path));
            match test_files(path) {
                Ok(files) => {
                    for file in files {
                        session.file(file.path(), filter, &known);
                    }
                }
                Err(error) => session.failures.push(FileFailure {
                    path: path.display().to_string(),
                    failure: LoadFailure::Read(error),
                }),
            }
        }
        Ok(session)
    }

    fn file(&mut self, path: &Path, filter: Option<&str>, known: &KnownSettings) {
        let file = match rule_tests::load(path, known) {
            Ok(file) => file,
            Err(failure) => {
                if let LoadFailure::Reports { watched, .. } = &failure {
                    self.watched.extend(watched.iter().cloned());
                }
                let path = path.display().to_string();
                self.failures.push(FileFailure { path, failure });
                return;
            }
        };
        for test in &file.tests {
            if filter.is_some_and(|filter| !test.name.contains(filter)) {
                self.filtered += 1;
                continue;
            }
            let result = rule_tests::run(&file, test, &mut self.coverage);
            self.tests.push(TestOutcome {
                file: file.name.clone(),
                name: test.name.clone(),
                span: test.span,
                result: result.map_err(|error| error.to_string()),
            });
        }
        self.watched.extend(file.watched);
        self.warnings.extend(file.warnings);
    }

    /// How many tests passed, and how many failed.
    pub(super) fn counts(&self) -> (usize, usize) {
        let passed = self.tests.iter().filter(|test| test.passed()).count();
        (passed, self.tests.len() - passed)
    }

    /// Whether everything is as it is to be.
    pub(super) fn passed(&self) -> bool {
        self.failures.is_empty()
            && self.counts().1 == 0
            && self.is_covered()
            && !self.is_filtered_out()
    }

    /// Whether the filter left no test.
    pub(super) fn is_filtered_out(&self) -> bool {
        self.tests.is_empty() && self.filtered > 0
    }

    /// Whether the tests reach enough of the rules.
    pub(super) fn is_covered(&self) -> bool {
        self.coverage_min
            .is_none_or(|least| self.coverage.percent() >= least)
    }
}

// === impl TestOutcome ===

impl TestOutcome {
    pub(super) fn passed(&self) -> bool {
        self.result.as_ref().is_ok_and(TestResult::passed)
    }
}
