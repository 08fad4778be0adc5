//! What the chart says to people: its notes and its README, each held to what it speaks of.
//!
//! What it deliberately does not do: judge prose.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::rendering::{
    EXAMPLE, FULL, HELMS, OWN_CONFIG_MAP, chart, helm, read, rendered, template, yaml,
};
use crate::running::TOLLGATE;

/// What `helm install` prints at its end. Helm renders notes only for a cluster, so here they are a template of a copy.
pub(crate) fn notes(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("tollgate");
    copy_folder(&chart(), &copy);
    let text = read("helm/tollgate/templates/NOTES.txt");
    let wrapped = format!(
        "{{{{ define \"notes\" }}}}{text}{{{{ end }}}}\nnotes: {{{{ include \"notes\" . | toJson }}}}\n"
    );
    std::fs::write(copy.join("templates/notes.yaml"), wrapped).expect("the copy");
    let only = [arguments, &["--show-only=templates/notes.yaml"]].concat();
    let [old, new] = HELMS.map(|version| {
        let text = template(version, &copy, &only).expect("the notes render");
        yaml(&text)[0]["notes"].as_str().expect("a text").to_owned()
    });
    assert_eq!(old, new);
    new
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The `clusters:` of an Envoy bootstrap that notes show, as they are indented there.
pub(crate) fn cluster(notes: &str) -> String {
    let lines = notes.lines().skip_while(|line| *line != "  clusters:");
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "{notes}");
    lines.join("\n") + "\n"
}

#[test]
fn the_notes_name_what_was_installed() {
    for (values, headless) in [
        (EXAMPLE, "demo-tollgate-headless"),
        (FULL, "edge-limits-headless"),
        (OWN_CONFIG_MAP, "demo-tollgate-headless"),
    ] {
        let notes = notes(&[values]);
        let rendered = rendered(&[values]);
        let cluster = &yaml(&cluster(&notes))[0]["clusters"][0];
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        let address = &endpoint["address"]["socket_address"];
        assert_eq!(
            address["address"],
            format!("{headless}.prod.svc.cluster.local")
        );
        assert_eq!(cluster["type"], "STRICT_DNS");
        assert_eq!(
            cluster["health_checks"][0]["grpc_health_check"]["service_name"],
            "ratelimit"
        );
        let services = rendered.all("Service");
        let service = services
            .iter()
            .find(|service| service["metadata"]["name"] == headless)
            .expect("the headless Service");
        assert_eq!(service["spec"]["clusterIP"], "None");
        assert_eq!(service["spec"]["ports"][0]["port"], address["port_value"]);
        let deployment = rendered.only("Deployment")["metadata"]["name"].as_str();
        let deployment = deployment.expect("a name");
        assert!(notes.contains(&format!("service/{deployment} 8081:8081")));
        assert!(notes.contains(&format!("http://{deployment}.prod:8080/metrics")));
    }
}

#[test]
fn the_notes_warn_of_what_is_easily_overlooked() {
    let example = notes(&[EXAMPLE]);
    assert!(
        example.contains("WARNING: you gave it no rules"),
        "{example}"
    );
    assert!(!example.contains("counts for itself"), "{example}");
    let full = notes(&[FULL]);
    assert!(full.contains("It serves edge.yaml, shop.yaml;"), "{full}");
    assert!(
        full.contains("WARNING: each of the 3 replicas counts for itself"),
        "{full}"
    );
    let own = notes(&[OWN_CONFIG_MAP]);
    assert!(own.contains("the rules in your ConfigMap limits"), "{own}");
    assert!(!own.contains("WARNING"), "{own}");
}

#[test]
fn every_command_in_the_chart_s_readme_runs() {
    let text = read("helm/tollgate/README.md");
    let blocks = text.split("```sh\n").skip(1);
    let mut count = 0;
    for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
        let words: Vec<_> = line
            .split(' ')
            .map(|word| word.trim_matches('\''))
            .collect();
        match words[..] {
            // There is no cluster here; rendering takes the same arguments.
            ["helm", "install", ref arguments @ ..] => {
                for version in HELMS {
                    let text = helm(version, &[&["template"], arguments].concat()).unwrap();
                    assert!(text.contains("kind: Deployment"), "{line}");
                    assert!(text.contains("edge.yaml: |"), "{line}");
                }
            }
            ["tollgate", ref arguments @ ..] => {
                let status = Command::new(TOLLGATE).args(arguments).status().unwrap();
                assert!(status.success(), "{line}");
            }
            _ => panic!("no test runs `{line}`"),
        }
        count += 1;
    }
    assert!(count > 0);
}

/// `values.yaml`, flattened where a map's keys are the chart's and not the user's.
fn flattened() -> BTreeMap<String, Value> {
    let values = yaml(&read("helm/tollgate/values.yaml")).remove(0);
    let mut flat = BTreeMap::new();
    for (name, value) in values.as_object().unwrap() {
        match (name.as_str(), value) {
            ("image" | "service" | "headlessService" | "serviceAccount", Value::Object(inner)) => {
                for (key, value) in inner {
                    flat.insert(format!("{name}.{key}"), value.clone());
                }
            }
            _ => {
                flat.insert(name.clone(), value.clone());
            }
        }
    }
    flat
}

#[test]
fn the_table_of_values_is_values_yaml_and_the_schema_knows_no_other() {
    let text = read("helm/tollgate/README.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let shown: BTreeMap<_, Value> = rows
        .map(|row| {
            let mut cells = row.split(" | ").map(|cell| cell.trim_matches('`'));
            let name = cells.next().unwrap().to_owned();
            (name, serde_json::from_str(cells.next().unwrap()).unwrap())
        })
        .collect();
    assert_eq!(shown, flattened());

    let schema: Value = serde_json::from_str(&read("helm/tollgate/values.schema.json")).unwrap();
    let mut known: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    known.retain(|name| *name != "global");
    let values = yaml(&read("helm/tollgate/values.yaml")).remove(0);
    let mut given: Vec<_> = values.as_object().unwrap().keys().collect();
    known.sort();
    given.sort();
    assert_eq!(known, given);
}
