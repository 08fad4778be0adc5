//! Options of the bench: duration, amount, and whether to write the page.
//!
//! How: each option is a line in [`OPTIONS`]; `tests/process` compares the commands of the pages
//! with it.
//!
//! What it deliberately does not do: choose what is measured (`axes`).

use std::path::PathBuf;

/// Every option, and what it does.
pub const OPTIONS: [(&str, &str); 7] = [
    ("--quick", "one short round of everything: whether it works"),
    ("--full", "more and longer rounds, and 10 M keys"),
    (
        "--write",
        "also write the figures and charts into README.md and docs",
    ),
    (
        "--write-to",
        "DIR: as --write, into copies of the pages below this folder",
    ),
    ("--rounds", "N: how many rounds"),
    ("--requests", "N: how many requests a measurement"),
    (
        "--axis",
        "NAME: only this one; latency and alone are some too, and so are shared, which needs Redis, and reference, which needs Envoy's service as well",
    ),
];

#[derive(Clone, Debug)]
pub struct Options {
    pub full: bool,
    /// Folder of the pages to write: the repository, or one for copies.
    pub write: Option<PathBuf>,
    pub rounds: usize,
    pub requests: u64,
    /// The duration of an open-loop run.
    pub latency_seconds: u64,
    pub axis: Option<String>,
    /// The command line, for the page.
    pub called: String,
}

impl Options {
    /// Parses the arguments, without those that cargo adds.
    ///
    /// # Errors
    ///
    /// A message for an unknown option.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let flag = |name: &str| arguments.iter().any(|argument| argument == name);
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1)
        };
        let number = |name: &str| -> Result<Option<u64>, String> {
            value(name)
                .map(|text| text.parse().map_err(|_| format!("{name} wants a number")))
                .transpose()
        };
        let unknown = arguments.iter().find(|argument| {
            argument.starts_with("--") && OPTIONS.iter().all(|(name, _)| name != argument)
        });
        if let Some(unknown) = unknown {
            let known = OPTIONS.map(|(name, what)| format!("  {name}  {what}"));
            return Err(format!(
                "no option {unknown}; there are\n{}",
                known.join("\n")
            ));
        }
        let (quick, full) = (flag("--quick"), flag("--full"));
        let usual = match (quick, full) {
            (true, _) => (1, 4_000, 1),
            (_, true) => (7, 120_000, 4),
            _ => (5, 40_000, 1),
        };
        let write = match value("--write-to") {
            Some(folder) => Some(PathBuf::from(folder)),
            None if flag("--write-to") => return Err("--write-to wants a folder".to_owned()),
            None => flag("--write").then(|| PathBuf::from(".")),
        };
        let rounds = number("--rounds")?.map_or(usual.0, |rounds| rounds.clamp(1, 99) as usize);
        Ok(Self {
            full,
            write,
            rounds,
            requests: number("--requests")?.unwrap_or(usual.1).max(1),
            latency_seconds: usual.2,
            axis: value("--axis").cloned(),
            called: arguments.join(" "),
        })
    }
}
