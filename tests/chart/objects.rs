//! Rendered objects: what must hold whatever the values are, and the fields that values set.
//!
//! What it deliberately does not do: compare whole objects (`snapshots`), or check that the binary
//! accepts them (`settings`, `running_pod`).

use serde_json::{Value, json};

use crate::chart::rendering::{
    HELMS, Rendered, rendered, rendered_by, text_cases, texts, values_files,
};

/// A field of the objects, as `fields.txt` names it; null if it is missing.
fn field<'r>(rendered: &'r Rendered, name: &str) -> &'r Value {
    if let Some(variable) = name.strip_prefix("env ") {
        return rendered.variable(variable);
    }
    let (kind, pointer) = name.split_at(name.find('/').unwrap_or(name.len()));
    let object = match kind {
        "pod" => rendered.pod(),
        "container" => rendered.container(),
        _ if rendered.all(kind).is_empty() => &Value::Null,
        _ => rendered.only(kind),
    };
    object.pointer(pointer).unwrap_or(&Value::Null)
}

#[test]
fn values_set_the_fields_that_the_table_says() {
    let cases = text_cases("fields.txt");
    let check = |version| {
        for (line, fields) in &cases {
            let arguments = line.replace(" --", "\n--");
            let rendered = rendered_by(version, &arguments.lines().collect::<Vec<_>>());
            for expected in fields {
                // A name may have a space, and a value may have many.
                let at = expected.find(['"', '[', '{']);
                let at = at.or_else(|| expected.rfind(' ').map(|space| space + 1));
                let (name, value) = expected.split_at(at.expect("a value"));
                let value: Value = serde_json::from_str(value).expect(expected);
                let found = field(&rendered, name.trim_end());
                assert_eq!(*found, value, "helm {version}, {line}: {name}");
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = HELMS.map(|version| scope.spawn(move || check(version)));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// The object's numbers in seconds.
fn seconds(text: &Value) -> u64 {
    let text = text.as_str().expect("a text");
    text.trim_end_matches('s').parse().expect("seconds")
}

#[test]
fn the_grace_period_outlasts_the_drain() {
    let mut cases = values_files();
    cases.push("--set=drainDelaySeconds=0,drainTimeoutSeconds=0".to_owned());
    cases.push("--set=drainDelaySeconds=3600,drainTimeoutSeconds=600".to_owned());
    cases.push("--set=terminationGracePeriodSeconds=13".to_owned());
    for values in cases {
        let rendered = rendered(&[&values]);
        let drain = seconds(rendered.variable("TOLLGATE_DRAIN_DELAY"))
            + seconds(rendered.variable("TOLLGATE_DRAIN_TIMEOUT"));
        let grace = rendered.pod()["terminationGracePeriodSeconds"].as_u64();
        assert!(grace.unwrap() > drain, "{values}");
    }
}

#[test]
fn changed_rules_replace_the_pods_only_when_configured() {
    let with = |reload: &str, rules: &str| {
        rendered(&[
            &format!("--set=config.reload={reload}"),
            &format!("--set={rules}"),
        ])
    };
    let [before, after] = ["rules.a=domain: a", "rules.a=domain: b"].map(|it| with("watch", it));
    assert_ne!(before.rules(), after.rules());
    assert_eq!(before.only("Deployment"), after.only("Deployment"));
    let checksum = |rules: &str| {
        let rendered = with("rollout", rules);
        let template = &rendered.only("Deployment")["spec"]["template"];
        template["metadata"]["annotations"]["checksum/rules"].clone()
    };
    let first = checksum("rules.a=domain: a");
    assert!(first.is_string());
    assert_ne!(first, checksum("rules.a=domain: b"));
    assert_ne!(first, checksum("rules.b=domain: a"));
    assert_eq!(first, checksum("rules.a=domain: a,replicaCount=2"));
}

/// A file that is mounted by `subPath` never changes. So the pods are replaced instead, or the
/// whole volume is mounted.
#[test]
fn what_changes_is_not_mounted_by_sub_path() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let template = &rendered.only("Deployment")["spec"]["template"];
        let by_rollout = template["metadata"]["annotations"]["checksum/rules"].is_string();
        let mounts = rendered.container()["volumeMounts"].as_array();
        for mount in mounts.into_iter().flatten() {
            let fixed = mount["subPath"].is_string() || mount["subPathExpr"].is_string();
            let expected = by_rollout && mount["name"] == "rules";
            assert_eq!(fixed, expected, "{values}: {mount}");
        }
    }
}

/// No object holds a secret, and each mounted Secret is a folder with the files that variables
/// name.
#[test]
fn secrets_are_files_named_by_variables() {
    let mut mounted = 0;
    for values in values_files() {
        let rendered = rendered(&[&values]);
        assert!(rendered.all("Secret").is_empty(), "{values}");
        let variables = rendered.container()["env"].as_array().unwrap();
        let volumes = rendered.pod()["volumes"].as_array();
        for volume in volumes.into_iter().flatten() {
            // Volumes of the values' own are the operator's.
            let name = volume["name"].as_str().unwrap();
            let folder = format!("/etc/tollgate/{name}");
            let mounts = rendered.container()["volumeMounts"].as_array().unwrap();
            let mount = mounts.iter().find(|mount| mount["mountPath"] == *folder);
            if volume["secret"].is_null() || mount.is_none() {
                continue;
            }
            mounted += 1;
            assert_eq!(mount.unwrap()["name"], name, "{values}");
            let begin = format!("{folder}/");
            let named = variables.iter().filter_map(|it| it["value"].as_str());
            let files = named.filter_map(|value| value.strip_prefix(&begin));
            assert!(files.count() > 0, "{values}: {name}");
        }
    }
    assert!(mounted >= 10, "{mounted}");
}

#[test]
fn services_reach_the_pods_by_named_ports() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let labels = &rendered.only("Deployment")["spec"]["template"]["metadata"]["labels"];
        let selector = &rendered.only("Deployment")["spec"]["selector"]["matchLabels"];
        let ports = rendered.container()["ports"].as_array().unwrap();
        for service in rendered.all("Service") {
            let spec = &service["spec"];
            assert_eq!(&spec["selector"], selector, "{values}");
            for port in spec["ports"].as_array().unwrap() {
                let mut named = ports.iter().filter(|it| it["name"] == port["targetPort"]);
                let container = named.next().expect("a port of the pod");
                // A headless name has no port mapping.
                assert_eq!(container["containerPort"], port["port"], "{values}");
            }
            // A pod that drains, or has no rules, is one to look at, but serves no checks.
            let unready = spec["publishNotReadyAddresses"] == true;
            let admin = texts(&spec["ports"], "name") == ["admin"];
            assert_eq!(unready, admin, "{values}");
        }
        let selected = |labels: &Value| {
            let mut all = selector.as_object().unwrap().iter();
            all.all(|(name, value)| labels[name] == *value)
        };
        assert!(selected(labels), "{values}");
        // Pods that do not serve get no requests.
        for alone in rendered.all("Pod").into_iter().chain(rendered.all("Job")) {
            let labels = match alone["kind"].as_str() {
                Some("Job") => &alone["spec"]["template"]["metadata"]["labels"],
                _ => &alone["metadata"]["labels"],
            };
            assert!(!selected(labels), "{values}: {labels}");
        }
    }
}

#[test]
fn the_certificate_has_the_names_of_all_services() {
    let rendered = rendered(&["--values=helm/tollgate/ci/cert-manager-values.yaml"]);
    let certificate = &rendered.only("Certificate")["spec"];
    let names = certificate["dnsNames"].as_array().unwrap();
    for service in rendered.all("Service") {
        let name = service["metadata"]["name"].as_str().unwrap();
        for suffix in ["", ".prod", ".prod.svc", ".prod.svc.cluster.local"] {
            let name = json!(format!("{name}{suffix}"));
            assert!(names.contains(&name), "{name}");
        }
    }
}
