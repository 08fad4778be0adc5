//! Invalid values: each is rejected with the name of the value and the allowed ones.
//!
//! The cases are in `refused_by_the_schema.txt` and `refused_by_a_guard.txt`.
//!
//! What it deliberately does not do: settings (`settings`).

use serde_json::Value;

use crate::chart::rendering::{Case, HELMS, helm, read, refusal, rendered, text_cases};

/// The error of a version of Helm for a case, which has the texts of the case.
fn refused(version: &str, (set, texts): &Case) -> String {
    let said = refusal(version, &[set]);
    for text in texts {
        assert!(
            said.contains(text),
            "helm {version}, {set}: no {text} in: {said}"
        );
    }
    said
}

#[test]
fn an_invalid_value_is_reported_with_the_allowed_ones() {
    let cases = text_cases("refused_by_the_schema.txt");
    assert!(cases.len() >= 39, "{}", cases.len());
    for (index, case) in cases.iter().enumerate() {
        let said = refused(HELMS[index % 2], case);
        assert!(said.contains("schema"), "{}: {said}", case.0);
    }
}

#[test]
fn contradicting_values_are_rejected_with_advice() {
    let cases = text_cases("refused_by_a_guard.txt");
    assert!(cases.len() >= 85, "{}", cases.len());
    let mut met = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        // Helm 4 would pass on a duplicate in a list.
        let versions = if case.0.starts_with("--set-json") {
            &HELMS[..]
        } else {
            &HELMS[index % 2..][..1]
        };
        for version in versions {
            let said = refused(version, case);
            assert!(!said.contains("hush"), "{said}");
            met.push(said);
        }
    }
    // The same key is no duplicate when another field differs.
    let items = r#"[{"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","maxSkew":1},{"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","maxSkew":1}]"#;
    rendered(&[&format!("--set-json=topologySpreadConstraints={items}")]);
    for release in ["1st", "a.b"] {
        let said = helm(HELMS[0], &["template", release, "helm/tollgate"]).unwrap_err();
        assert!(said.contains("set fullnameOverride"), "{said}");
        met.push(said);
    }
    for guard in guards() {
        assert!(
            met.iter().any(|said| said.contains(&guard)),
            "nothing meets the guard `{guard}`"
        );
    }
}

/// In Helm 4 the schema would report an invalid key at a path that changes from run to run, so a
/// template checks the keys of every map with free keys.
#[test]
fn an_invalid_key_is_reported_at_the_path_of_its_map() {
    let schema = read("helm/tollgate/values.schema.json");
    assert!(!schema.contains("\"propertyNames\""));
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut paths = Vec::new();
    keyed("", &schema, &schema, &mut paths);
    paths.sort();
    assert!(paths.len() >= 21, "{paths:?}");
    let long = format!("a/{}", "b".repeat(64));
    let wrong = ["a b", "-a", "a/b/c", &long];
    for (index, path) in paths.iter().enumerate() {
        let files = path == "rules" || path == "candidate.rules";
        // All wrong keys at the first path, then one a path.
        let keys = match index {
            _ if files => &["..data"][..],
            0 => &wrong,
            _ => &wrong[index % wrong.len()..][..1],
        };
        let advice = if files {
            "write a file name"
        } else {
            "write NAME or DOMAIN/NAME"
        };
        for key in keys {
            let map = serde_json::json!({ *key: "1" });
            let said = refusal(HELMS[index % 2], &[&format!("--set-json={path}={map}")]);
            let named = format!("{path} has the key `{key}`; {advice}");
            assert!(said.contains(&named), "{said}");
        }
    }
}

/// Paths of a schema's maps with free keys.
fn keyed(path: &str, schema: &Value, root: &Value, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = root.pointer(name.trim_start_matches('#')).expect(name);
        return keyed(path, schema, root, found);
    }
    if schema["additionalProperties"].is_object() {
        found.push(path.to_owned());
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        keyed(&format!("{path}{dot}{name}"), schema, root, found);
    }
}

/// Texts of all guards, up to the first placeholder.
pub(crate) fn guards() -> Vec<String> {
    let text = read("helm/tollgate/templates/_guards.tpl");
    let guards = text.split("{{- fail ").skip(1).map(|rest| {
        let text = rest.split('"').nth(1).expect("a text");
        let parts = text.split(['%', '`']);
        let parts = parts.map(|part| part.trim_start_matches(['s', 'd']));
        parts
            .max_by_key(|part| part.len())
            .expect("a part")
            .to_owned()
    });
    guards.collect()
}
