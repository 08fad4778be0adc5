//! What values the chart takes, and what becomes of them: lint, render, Kubernetes' own schemas, refusals.
//!
//! What it deliberately does not do: read the objects (`objects`).

use std::process::Command;

use crate::rendering::{HELMS, chart, helm, read, refusal, rendered, template, values_files, yaml};
use crate::running::component;

/// The oldest Kubernetes that Chart.yaml promises, one in wide use, the newest we have schemas of.
const KUBERNETES: [&str; 3] = ["1.25", "1.30", "1.37"];

/// What the API server would say to an object's fields.
fn validate(manifests: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    std::fs::write(&file, manifests).unwrap();
    for version in KUBERNETES {
        let output = Command::new(component("venv/bin/kubernetes-validate"))
            .args(["--strict", "-k", version])
            .arg(&file)
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "Kubernetes {version}: {said}");
        assert!(said.contains("passed for resource deployment/"), "{said}");
    }
}

#[test]
fn both_helms_lint_it_and_render_the_same_and_kubernetes_takes_it() {
    for version in HELMS {
        let said = helm(version, &["version", "--short"]).unwrap();
        assert!(said.starts_with(&format!("v{version}")), "{said}");
    }
    for values in values_files() {
        let chart_path = chart().display().to_string();
        let [old, new] = HELMS.map(|version| {
            helm(version, &["lint", "--strict", &chart_path, &values]).unwrap();
            template(version, &chart(), &[&values]).unwrap()
        });
        assert_eq!(yaml(&old), yaml(&new), "{values}");
        validate(&old);
    }
}

#[test]
fn the_longest_release_name_makes_good_names() {
    let name = "a".repeat(53);
    let text = helm(HELMS[0], &["template", &name, "helm/tollgate"]).unwrap();
    validate(&text);
    for object in yaml(&text) {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{name}");
    }
}

#[test]
fn names_that_yaml_takes_for_numbers_stay_text() {
    let arguments = ["template", "n1", "helm/tollgate", "--namespace", "7"];
    let set = ["--set-string=existingConfigMap=12,nameOverride=34,fullnameOverride=null"];
    for version in HELMS {
        let text = helm(version, &[&arguments[..], &set[..]].concat()).unwrap();
        validate(&text);
    }
}

#[test]
fn the_schema_refuses_what_it_does_not_know() {
    // What is set, and what helm must name.
    let cases = [
        ("--set=replicaCount=two", "/replicaCount"),
        ("--set=replicas=2", "'replicas'"),
        ("--set=image.tga=1.0", "'tga'"),
        ("--set-json=image.tag=1.10", "/image/tag"),
        ("--set=image.digest=sha256:abc", "/image/digest"),
        ("--set=image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("--set=settings.LOG_LEVL=info", "'LOG_LEVL'"),
        ("--set=settings.LOG_LEVEL=loud", "/settings/LOG_LEVEL"),
        ("--set=settings.GRPC_PORT=9090", "'GRPC_PORT'"),
        (
            "--set=settings.GRPC_MAX_CONNECTION_AGE=5",
            "/settings/GRPC_MAX_CONNECTION_AGE",
        ),
        ("--set=settings.SHADOW_MODE=maybe", "/settings/SHADOW_MODE"),
        ("--set=drainDelaySeconds=5s", "/drainDelaySeconds"),
        ("--set=livenessProbe.httpGet.path=/", "'httpGet'"),
        (
            "--set=extraEnv[0].name=A,extraEnv[0].value=1",
            "/extraEnv/0/value",
        ),
        ("--set=extraArgs[0]=other.yaml", "/extraArgs/0"),
        (r#"--set-json=rules={"..data":"domain: a"}"#, "'..data'"),
        (r#"--set-json=rules={"a.yaml":{}}"#, "/rules/a.yaml"),
        (
            r#"--set-json=rules={"a.yaml":{"domain":"a","descriptors":[{"key":"k","descriptors":[{"value":true}]}]}}"#,
            "/rules/a.yaml/descriptors/0/descriptors/0/value",
        ),
    ];
    for (set, named) in cases {
        for version in HELMS {
            let said = refusal(version, &[set]);
            assert!(said.contains(named), "helm {version}, {set}: {said}");
            assert!(
                said.contains("values.schema.json") || said.contains("schema"),
                "{said}"
            );
        }
    }
}

#[test]
fn values_that_contradict_one_another_are_refused_with_what_to_do() {
    let cases = [
        (
            "--set=existingConfigMap=mine,rules.a=b",
            "rules and existingConfigMap are both given; keep one",
        ),
        (
            "--set=terminationGracePeriodSeconds=10",
            "terminationGracePeriodSeconds is 10, and a drain may take 10",
        ),
        (
            "--set=drainDelaySeconds=20,terminationGracePeriodSeconds=25",
            "give more, or leave it out",
        ),
        (
            "--set=extraArgs={--near-limit-ratio,0.5}",
            "/extraArgs/1", // a value goes after `=`: alone it would be a second RULES
        ),
        (
            "--set=settings.TOLLGATE_MAILBOX_CHECKS_MAX=1,extraEnv[0].name=TOLLGATE_MAILBOX_CHECKS_MAX",
            "extraEnv and settings both have TOLLGATE_MAILBOX_CHECKS_MAX; keep one",
        ),
    ];
    for (set, named) in cases {
        for version in HELMS {
            let said = refusal(version, &[set]);
            assert!(said.contains(named), "helm {version}, {set}: {said}");
        }
    }
}

#[test]
fn a_release_whose_name_makes_no_service_is_told_what_to_do() {
    for release in ["1st", "a.b"] {
        let said = helm(HELMS[0], &["template", release, "helm/tollgate"]).unwrap_err();
        assert!(said.contains("set fullnameOverride"), "{said}");
    }
}

#[test]
fn a_parent_chart_may_hand_it_globals() {
    let parent = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(parent.path().join(name), text).unwrap();
    write(
        "Chart.yaml",
        "{apiVersion: v2, name: parent, version: 0.1.0}\n",
    );
    write(
        "values.yaml",
        "{global: {team: edge}, tollgate: {replicaCount: 2}}\n",
    );
    std::fs::create_dir(parent.path().join("charts")).unwrap();
    std::os::unix::fs::symlink(chart(), parent.path().join("charts/tollgate")).unwrap();
    for version in HELMS {
        let text = template(version, parent.path(), &[]).unwrap();
        let objects = yaml(&text);
        let deployment = objects
            .iter()
            .find(|object| object["kind"] == "Deployment")
            .unwrap();
        assert_eq!(deployment["spec"]["replicas"], 2);
    }
}

#[test]
fn an_older_kubernetes_than_it_promises_is_refused() {
    let promised = format!("kubeVersion: \">={}.0-0\"", KUBERNETES[0]);
    assert!(read("helm/tollgate/Chart.yaml").contains(&promised));
    rendered(&["--kube-version=1.25"]);
    let said = refusal(HELMS[1], &["--kube-version=1.24"]);
    assert!(said.contains("incompatible with Kubernetes"), "{said}");
}

#[test]
fn chart_and_binary_have_one_version() {
    let metadata = &yaml(&read("helm/tollgate/Chart.yaml"))[0];
    assert_eq!(metadata["appVersion"], env!("CARGO_PKG_VERSION"));
    let image = |arguments: &[&str]| rendered(arguments).container()["image"].clone();
    let digest = format!("sha256:{}", "0".repeat(64));
    let by_digest = format!("--set=image.digest={digest}");
    assert_eq!(image(&[]), concat!("tollgate:", env!("CARGO_PKG_VERSION")));
    assert_eq!(image(&["--set=image.tag=next"]), "tollgate:next");
    assert_eq!(image(&[&by_digest]), format!("tollgate@{digest}"));
    assert_eq!(
        image(&["--set=image.tag=next", &by_digest]),
        format!("tollgate:next@{digest}")
    );
}
