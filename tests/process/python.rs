//! Programs in Python that check what tollgate prints.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;

use crate::process::commands::tollgate;

/// Prints where values differ from their parts of a schema. Also asserts that each value would be
/// invalid with a field more or without a required one.
const VALIDATE: &str = "import json, sys, jsonschema
schema, values = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
for part, value in values:
    own = {'$schema': schema['$schema'], '$defs': schema['$defs'], '$ref': '#/$defs/' + part}
    validator = jsonschema.Draft202012Validator(own if part else schema)
    for error in validator.iter_errors(value):
        print(part, list(error.absolute_path), error.message)
    assert next(validator.iter_errors({**value, 'surprise': 1}), None), part
    definition = schema['$defs'][part] if part else schema
    for name in value if 'oneOf' not in definition else []:
        without = {key: value[key] for key in value if key != name}
        required = name in definition['required']
        assert (next(validator.iter_errors(without), None) is not None) == required, (part, name)
";

/// Runs a program with this input; returns what it prints.
pub(crate) fn python(program: &str, input: &str) -> String {
    let mut child = Command::new(component("venv/bin/python"))
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn_tied()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// How values differ from the schema that `tollgate schema --for` prints. Each has the name of its
/// definition, or none for the whole schema.
pub(crate) fn schema_errors(subject: &str, values: &[(&str, Value)]) -> String {
    let (_, schema, _) = tollgate(&["schema", "--for", subject]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    python(VALIDATE, &json!([schema, values]).to_string())
}

/// `make readme` writes the schemas; here they must be the same.
#[test]
fn the_committed_schemas_are_those_that_are_printed() {
    for (subject, path) in [
        ("admin", "docs/admin.schema.json"),
        ("api", "docs/openapi.json"),
        ("check", "docs/check.schema.json"),
        ("rule-tests", "docs/rule-tests.schema.json"),
    ] {
        let (code, printed, _) = tollgate(&["schema", "--for", subject]);
        assert_eq!(code, 0, "{subject}");
        if std::env::var_os("WRITE_README").is_some() {
            std::fs::write(path, &printed).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == printed, "{path}: run make readme");
    }
}
