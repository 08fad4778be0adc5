//! Baseline: instructions per check for each scenario, and the compiler that built it.
//!
//! Why the compiler: another one generates different instructions, by a few per cent. So
//! [`Baseline::judge`] has a wider tolerance for another compiler, and a much wider one for another
//! instruction set; a cost that doubles is always detected.
//!
//! What it deliberately does not do: count (`main`).

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

/// Tolerance in per cent, in both directions.
const SAME_COMPILER_PERCENT: u64 = 3;
const OTHER_COMPILER_PERCENT: u64 = 15;
const OTHER_PROCESSOR_PERCENT: u64 = 50;

const HEAD: &str = "\
# Instructions a check, by callgrind: decode, plan, apply, conclude, encode.
# `make baseline` writes this file; tests/instructions holds every change against it.
";

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Compiler {
    /// As in `rustc -vV`.
    pub(crate) release: String,
    pub(crate) host: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Baseline {
    pub(crate) compiler: Compiler,
    /// By name.
    pub(crate) scenarios: BTreeMap<String, u64>,
}

impl Compiler {
    /// The compiler in use.
    pub(crate) fn present() -> Self {
        let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .arg("-vV")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let word = |name: &str| {
            let mut lines = said.lines();
            let word = lines.find_map(|line| line.strip_prefix(name));
            word.expect("rustc says so").to_owned()
        };
        Self {
            release: word("release: "),
            host: word("host: "),
        }
    }

    fn tolerance_percent(&self, other: &Self) -> u64 {
        if self.host != other.host {
            OTHER_PROCESSOR_PERCENT
        } else if self.release != other.release {
            OTHER_COMPILER_PERCENT
        } else {
            SAME_COMPILER_PERCENT
        }
    }
}

impl Baseline {
    /// Parses the file.
    pub(crate) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut words: BTreeMap<String, String> = lines
            .map(|line| line.split_once(' ').expect("a name and a value"))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut take = |name: &str| words.remove(name).expect("the compiler");
        let compiler = Compiler {
            release: take("rustc"),
            host: take("host"),
        };
        let scenarios = words.into_iter();
        Self {
            compiler,
            scenarios: scenarios
                .map(|(name, value)| (name, value.parse().expect("a number")))
                .collect(),
        }
    }

    /// Differences of `now`, one line each.
    pub(crate) fn judge(&self, now: &Self) -> Vec<String> {
        let percent = self.compiler.tolerance_percent(&now.compiler);
        let mut wrong = Vec::new();
        for (name, kept) in &self.scenarios {
            match now.scenarios.get(name) {
                None => wrong.push(format!("{name}: is in the baseline and was not counted")),
                Some(counted) if counted.abs_diff(*kept) * 100 > kept * percent => {
                    let how = if counted > kept { "dearer" } else { "cheaper" };
                    wrong.push(format!(
                        "{name}: {how}: {counted} instructions a check, the baseline says {kept} (allowed: {percent} %)"
                    ));
                }
                Some(_) => {}
            }
        }
        let new = now.scenarios.keys();
        let new = new.filter(|name| !self.scenarios.contains_key(*name));
        wrong.extend(new.map(|name| format!("{name}: is not in the baseline")));
        wrong
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiler { release, host } = &self.compiler;
        write!(f, "{HEAD}rustc {release}\nhost {host}\n")?;
        for (name, count) in &self.scenarios {
            writeln!(f, "{name} {count}")?;
        }
        Ok(())
    }
}

fn example(count: u64) -> Baseline {
    Baseline {
        compiler: Compiler {
            release: "1.95.0".to_owned(),
            host: "x86_64-unknown-linux-gnu".to_owned(),
        },
        scenarios: [("one".to_owned(), count)].into(),
    }
}

#[test]
fn a_written_baseline_reads_back() {
    let written = example(1_234);
    assert_eq!(Baseline::read(&written.to_string()), written);
}

#[test]
fn figures_may_differ_by_the_tolerance_in_both_directions() {
    let kept = example(1_000);
    for (count, complaints) in [(969, 1), (970, 0), (1_030, 0), (1_031, 1), (0, 1)] {
        assert_eq!(kept.judge(&example(count)).len(), complaints, "{count}");
    }
}

#[test]
fn other_compilers_and_processors_have_wider_tolerances() {
    let kept = example(1_000);
    let mut now = example(1_150);
    assert_eq!(kept.judge(&now).len(), 1);
    now.compiler.release = "1.88.0".to_owned();
    assert_eq!(kept.judge(&now), Vec::<String>::new());
    now.scenarios.insert("one".to_owned(), 1_151);
    assert_eq!(kept.judge(&now).len(), 1);
    now.compiler.host = "aarch64-unknown-linux-gnu".to_owned();
    assert_eq!(kept.judge(&now), Vec::<String>::new());
    now.scenarios.insert("one".to_owned(), 2_000);
    assert_eq!(kept.judge(&now).len(), 1);
}

#[test]
fn added_and_removed_scenarios_are_reported() {
    let kept = example(1_000);
    let mut now = kept.clone();
    now.scenarios.insert("two".to_owned(), 1);
    assert_eq!(kept.judge(&now), ["two: is not in the baseline"]);
    assert_eq!(
        now.judge(&kept),
        ["two: is in the baseline and was not counted"]
    );
}
