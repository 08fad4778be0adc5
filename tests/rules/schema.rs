//! The JSON Schema agrees with the loader on every text that a test here reads and on every rules
//! file of the project.
//!
//! An editor must not mark what the service accepts, or complete what it rejects. The schema is
//! validated by Python's `jsonschema` over PyYAML, in one process for all tests. What the loader
//! accepts without a warning must be valid; what it rejects by name or type must not be. A schema
//! cannot see what the loader rejects for its meaning (an invalid prefix, a duplicate).
//!
//! What it deliberately does not do: check texts longer than [`TEXT_BYTES_MAX`], which test bounds
//! and not grammar.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use tollgate::rules::file::{Code, Diagnostic, LoadedRules, Report, schema};

use crate::rules::reading::read;
use crate::rules::snapshots::yaml_files;

use tollgate_test_support::child_process::SpawnTied as _;

/// Longer texts are not validated against the schema.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Whether the loader's message is about a wrong name or type.
fn is_of_a_name_or_type(message: &str) -> bool {
    let of_a_type = message.starts_with("error loading config file: yaml: ")
        && [" is not ", " as a mapping"]
            .iter()
            .any(|words| message.contains(words));
    message.starts_with("config error, ")
        || message.starts_with("error checking config")
        || message.ends_with("' has no value")
        || message.ends_with("' has no effect here")
        || message == "'rate_limit' and 'rate_limits' on one descriptor"
        || message.ends_with("' has no effect without calendar")
        || message.starts_with("calendar windows last a day at least")
        || message.ends_with(" needs segments")
        || of_a_type
}

/// A Python process that validates texts. It ends with its input, when this process ends.
pub(crate) struct Validator {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: Child,
    _schema: tempfile::NamedTempFile,
}

static VALIDATOR: Mutex<Option<Validator>> = Mutex::new(None);

impl Validator {
    pub(crate) fn start(schema: &serde_json::Value) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), schema.to_string()).unwrap();
        let python = root.join("target/venv/bin/python");
        let mut child = Command::new(&python)
            .arg(root.join("tests/rules/schema.py"))
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_tied()
            .unwrap_or_else(|error| panic!("{}: {error}; run make deps", python.display()));
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            _child: child,
            _schema: file,
        }
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        let question = serde_json::to_string(text).unwrap();
        writeln!(self.input, "{question}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).expect("an answer; see Python's error above")
    }
}

fn validated(text: &str) -> String {
    let mut validator = VALIDATOR.lock().unwrap_or_else(PoisonError::into_inner);
    validator
        .get_or_insert_with(|| Validator::start(&schema()))
        .ask(text)
}

/// Panics when schema and loader contradict one another.
pub(crate) fn agreed(text: &str, read: &Result<LoadedRules, Report>) {
    // A validator walks each alias again; the loader has a budget.
    let unfolds = |problem: &Diagnostic| problem.message.contains("unfold");
    if text.len() > TEXT_BYTES_MAX
        || read
            .as_ref()
            .is_err_and(|all| all.errors.iter().any(unfolds))
    {
        return;
    }
    let schema_says = validated(text);
    // Only a misplaced name is a matter of the schema.
    let is_misplaced = |warning: &Diagnostic| warning.code == Code::MisplacedKey;
    match read {
        Ok(loaded) if !loaded.warnings.iter().any(is_misplaced) => {
            assert_eq!(schema_says, "valid", "the loader accepts this:\n{text}");
        }
        Ok(_) => {}
        Err(problems) => {
            let mut problems = problems.errors.iter();
            let by_name_or_type = problems.find(|one| is_of_a_name_or_type(&one.message));
            if let Some(problem) = by_name_or_type {
                assert_ne!(schema_says, "valid", "the loader says: {problem}\n{text}");
            }
        }
    }
}

#[test]
fn schema_and_loader_agree_on_the_corpus_and_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = yaml_files(&root.join("fuzz/corpus/rules_file"));
    files.push(root.join("examples/edge.yaml"));
    assert!(files.len() > 20, "the corpus is missing");
    let mut taken = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        taken += u32::from(read(&text).is_ok());
    }
    assert!(taken >= 6, "only {taken} are valid");
}

#[test]
fn the_schema_rejects_what_an_editor_should_mark() {
    for (limit, marked) in [
        ("{unit: minute, requests_per_unit: 5}", false),
        ("{unit: Minute, requests_per_unit: 5}", false),
        ("{unit: fortnight, requests_per_unit: 5}", true),
        ("{requests_per_unit: 5}", true),
        ("{unlimited: true}", false),
        ("{unlimited: true, burst: 5}", true),
        (
            "{unit: minute, requests_per_unit: 5, algorithm: gcra, burst: 2}",
            false,
        ),
        ("{unit: minute, requests_per_unit: 5, burst: 2}", true),
        (
            "{unit: minute, requests_per_unit: 5, algorithm: leaky}",
            true,
        ),
        ("{algorithm: concurrency, requests_per_unit: 5}", true),
        (
            "{algorithm: concurrency, requests_per_unit: 5, slot_seconds: 9}",
            false,
        ),
        (
            "{algorithm: concurrency, requests_per_unit: 5, slot_seconds: 9, unit: day}",
            true,
        ),
        (
            "{unit: day, requests_per_unit: 5, calendar: true, week_start: Sunday}",
            false,
        ),
        (
            "{unit: day, requests_per_unit: 5, algorithm: sliding_log, calendar: true}",
            true,
        ),
        ("{unit: day, requests_per_unit: -1}", true),
        ("{unit: day, requests_per_unit: 9007199254740992}", true),
    ] {
        let text = format!("{{domain: d, descriptors: [{{key: k, rate_limit: {limit}}}]}}");
        let said = validated(&text);
        assert_eq!(said != "valid", marked, "{limit}: {said}");
    }
}

/// Tables of the fields of every mapping, for `docs/rules.md`.
fn tables(schema: &serde_json::Value) -> String {
    let mut tables = String::new();
    for (name, mapping) in schema["$defs"].as_object().unwrap() {
        let about = mapping["description"].as_str().unwrap();
        let head = "| field | what it is |\n| --- | --- |";
        let _ = writeln!(tables, "\n### {name}\n\n{about}\n\n{head}");
        for (field, value) in mapping["properties"].as_object().unwrap() {
            let about = value["description"].as_str().unwrap();
            let _ = writeln!(tables, "| `{field}` | {about} |");
        }
    }
    tables
}

/// `make readme` writes the tables; otherwise this test compares them.
#[test]
fn the_tables_of_fields_are_the_grammar() {
    const START: &str = "<!-- Written by `make readme`. -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, written) = page.split_once(START).unwrap();
    let made = tables(&schema());
    if std::env::var_os("WRITE_README").is_some() {
        fs::write(&path, format!("{before}{START}{made}")).unwrap();
    } else {
        assert!(written == made, "run make readme");
    }
}

#[test]
fn the_committed_schema_is_the_one_the_code_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.schema.json");
    let made = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("WRITE_README").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "run make readme");
}
