//! Every values file in ci/, with both helm versions and every supported Kubernetes: lint, render,
//! strict schemas.
//!
//! How: the file `subchart` is rendered below a parent chart that passes its values down.
//!
//! What it deliberately does not do: check what is rendered (`snapshots`, `pod_security`,
//! `objects`).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::rendering::{HELMS, chart, helm, read, template, validated, values_files, yaml};

/// The oldest version that Chart.yaml allows, the first with the sleep hook, one in wide use, and
/// the newest with schemas.
pub(crate) const KUBERNETES: [&str; 4] = ["1.27", "1.30", "1.34", "1.37"];

/// Scenarios that must be there.
const NAMES: [&str; 11] = [
    "cert-manager",
    "everything-off",
    "everything-on",
    "minimal",
    "old-kubernetes",
    "production",
    "redis-cluster",
    "snapshot",
    "subchart",
    "tls",
    "xds",
];

/// One values file, rendered for one Kubernetes.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kubernetes: &'static str,
    pub(crate) objects: Vec<Value>,
    complaints: Vec<String>,
}

/// A chart with ours as a subchart.
struct Parent(TempDir);

impl Parent {
    /// One that passes down a values file of ci/.
    fn of(file: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("a file");
        };
        let mut ours = yaml(&read(file)).remove(0);
        let mut values = json!({ "global": ours["global"] });
        ours.as_object_mut().expect("a map").remove("global");
        values["tollgate"] = ours;
        write(
            "Chart.yaml",
            "{apiVersion: v2, name: parent, version: 0.1.0, dependencies: [{name: tollgate, version: '*', condition: tollgate.enabled}]}\n",
        );
        write("values.yaml", &values.to_string());
        for folder in ["charts", "templates"] {
            std::fs::create_dir(directory.path().join(folder)).expect("a folder");
        }
        std::os::unix::fs::symlink(chart(), directory.path().join("charts/tollgate"))
            .expect("a link");
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Every values file and Kubernetes: the chart, and arguments of helm.
fn scenarios(parent: &Parent) -> Vec<(PathBuf, Vec<String>)> {
    let of = |name: &str, kubernetes: &str| {
        let kubernetes = format!("--kube-version={kubernetes}");
        let values = format!("--values=helm/tollgate/ci/{name}-values.yaml");
        match name {
            "subchart" => (parent.path().to_owned(), vec![kubernetes]),
            _ => (chart(), vec![values, kubernetes]),
        }
    };
    let names = NAMES.iter().copied();
    names
        .flat_map(|name| KUBERNETES.map(|kubernetes| of(name, kubernetes)))
        .collect()
}

/// All cases, rendered by one version of helm.
fn rendered_by(version: &str) -> Vec<Case> {
    let parent = Parent::of("helm/tollgate/ci/subchart-values.yaml");
    let texts: Vec<_> = scenarios(&parent)
        .iter()
        .map(|(chart, arguments)| {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            template(version, chart, &arguments).expect("it renders")
        })
        .collect();
    let versions = KUBERNETES.iter().copied().cycle();
    let renders: Vec<_> = versions.zip(texts.iter().map(String::as_str)).collect();
    let names = NAMES
        .iter()
        .flat_map(|name| KUBERNETES.map(|kubernetes| (*name, kubernetes)));
    names
        .zip(validated(&renders))
        .map(|((name, kubernetes), (objects, complaints))| Case {
            name,
            kubernetes,
            objects,
            complaints,
        })
        .collect()
}

/// All cases, rendered by the newer helm.
pub(crate) fn cases() -> Vec<Case> {
    rendered_by(HELMS[1])
}

/// Runs helm's linter on every values file, for the oldest and the newest Kubernetes.
fn lint(version: &str) {
    let parent = Parent::of("helm/tollgate/ci/subchart-values.yaml");
    for of_one_file in scenarios(&parent).chunks(KUBERNETES.len()) {
        for (chart, arguments) in [&of_one_file[0], &of_one_file[KUBERNETES.len() - 1]] {
            let path = chart.display().to_string();
            let arguments = arguments.iter().map(String::as_str);
            let all: Vec<_> = ["lint", "--strict", &path]
                .into_iter()
                .chain(arguments)
                .collect();
            helm(version, &all).expect("it passes lint");
        }
    }
}

#[test]
fn both_helms_lint_and_render_the_same_for_every_kubernetes() {
    for version in HELMS {
        let said = helm(version, &["version", "--short"]).unwrap();
        assert!(said.starts_with(&format!("v{version}")), "{said}");
    }
    let files: Vec<_> = NAMES
        .iter()
        .map(|name| format!("--values=helm/tollgate/ci/{name}-values.yaml"))
        .collect();
    let mut there = values_files();
    there.sort();
    assert_eq!(there, files);
    let [old, new] = std::thread::scope(|scope| {
        let threads = HELMS.map(|version| {
            scope.spawn(move || {
                lint(version);
                rendered_by(version)
            })
        });
        threads.map(|thread| thread.join().expect("they render"))
    });
    assert_eq!(new.len(), NAMES.len() * KUBERNETES.len());
    for (old, new) in old.iter().zip(&new) {
        let case = format!("{}, Kubernetes {}", new.name, new.kubernetes);
        assert_eq!(new.objects, old.objects, "{case}");
        assert_eq!(new.complaints, [""; 0], "{case}");
        let mut kinds = new.objects.iter().map(|object| &object["kind"]);
        assert!(kinds.any(|kind| kind == "Deployment"), "{case}");
    }
}

/// Errors that otherwise only a server reports: an unknown field, a field of a newer Kubernetes, an
/// invalid duration.
#[test]
fn the_schemas_reject_what_an_api_server_would() {
    let deployment = |container: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a}}, spec: {{selector: {{}}, template: {{spec: {{\
             containers: [{{name: a, {container}}}]}}}}}}}}"
        )
    };
    let monitor = |endpoint: &str| {
        format!(
            "{{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {{name: a}}, \
             spec: {{selector: {{}}, endpoints: [{{{endpoint}}}]}}}}"
        )
    };
    let asked = [
        ("1.37", deployment("image: a"), ""),
        ("1.37", deployment("readynessProbe: {}"), "'readynessProbe' was unexpected"),
        ("1.27", deployment("lifecycle: {preStop: {sleep: {seconds: 1}}}"), "'sleep' was unexpected"),
        ("1.30", deployment("lifecycle: {preStop: {sleep: {seconds: 1}}}"), ""),
        ("1.37", monitor("port: http, interval: 30s"), ""),
        ("1.37", monitor("port: http, intervall: 30s"), "/spec/endpoints/0/intervall is no field"),
        ("1.37", monitor("port: http, interval: soon"), "/spec/endpoints/0/interval breaks pattern"),
        (
            "1.37",
            "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, spec: {scaleTargetRef: {name: a}, minReplicas: 1, triggers: []}}"
                .to_owned(),
            "/spec/minReplicas is no field",
        ),
        (
            "1.37",
            "{apiVersion: cert-manager.io/v1, kind: Certificate, spec: {secretName: a, issuerRef: {nam: a}}}".to_owned(),
            "/spec/issuerRef/nam is no field",
        ),
        ("1.37", "{apiVersion: example.com/v1, kind: Other}".to_owned(), "no schema is known"),
    ];
    let renders: Vec<_> = asked
        .iter()
        .map(|(version, text, _)| (*version, text.as_str()))
        .collect();
    for ((version, text, expected), (_, complaints)) in asked.iter().zip(validated(&renders)) {
        let said = complaints.join("\n");
        assert_eq!(
            said.is_empty(),
            expected.is_empty(),
            "{version}: {text}: {said}"
        );
        assert!(said.contains(expected), "{version}: {text}: {said}");
    }
}
