//! The chart on a real Kubernetes API server, with real Helm 3 and 4: `make test-kubernetes`.
//!
//! Why: schemas do not show what a server-side apply rejects, what an upgrade removes, and what an
//! uninstall leaves.
//!
//! How: the API server, etcd and the controller manager are built from Go modules
//! (`server/go.mod`). Each test has its own cluster; tests run one at a time.
//!
//! What it deliberately does not do: run pods (`tests/image`), or check renders (`tests/chart`).

mod cluster;

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tollgate_test_support::polling::until;

use cluster::Cluster;

const HELMS: [&str; 2] = ["3.19.0", "4.3.1"];

const CHART: &str = "helm/tollgate";

/// Name of the release in the chart's README.
const RELEASE: &str = "limits";

/// Custom resources of other operators, which an API server must define before it accepts them.
const KINDS: [(&str, &str, &str); 5] = [
    (
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "servicemonitors",
    ),
    ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
    (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        "prometheusrules",
    ),
    ("cert-manager.io/v1", "Certificate", "certificates"),
    ("keda.sh/v1alpha1", "ScaledObject", "scaledobjects"),
];

/// One cluster at a time: each takes half a gigabyte.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A failure of another test does not matter here.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shell or YAML block of the chart's README, by its beginning.
fn block(begin: &str) -> String {
    let text = std::fs::read_to_string("helm/tollgate/README.md").expect("the README");
    let (_, rest) = text.split_once(begin).expect(begin);
    let (block, _) = rest.split_once("\n```").expect("its end");
    block.to_owned()
}

fn define_kinds(cluster: &Cluster) {
    for (version, kind, plural) in KINDS {
        let (group, version) = version.split_once('/').unwrap();
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{
                    "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": anything },
                }],
            },
        });
        cluster.apply(&definition.to_string(), &[]).unwrap();
        until(&format!("{kind} is known"), || {
            cluster.kubectl(&["get", &format!("{plural}.{group}")])
        });
    }
    cluster
        .kubectl(&["create", "namespace", "monitoring"])
        .unwrap();
}

#[test]
fn every_values_file_installs_and_upgrades_without_warnings() {
    let _one = alone();
    let cluster = Cluster::start();
    define_kinds(&cluster);
    let files = std::fs::read_dir("helm/tollgate/ci").unwrap();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().path().display().to_string())
        .collect();
    names.sort();
    assert_eq!(names.len(), 10);
    for values in names {
        for [first, second] in [[HELMS[0], HELMS[1]], [HELMS[1], HELMS[1]]] {
            let values = format!("--values={values}");
            // No pod runs here, so hooks never complete.
            let common = [RELEASE, CHART, &values, "--no-hooks"];
            let install = [&["install", "--create-namespace"], &common[..]].concat();
            let upgrade = [&["upgrade", "--set=minReadySeconds=7"], &common[..]].concat();
            for (helm, arguments) in [(first, install), (second, upgrade)] {
                let said = cluster.helm(helm, "edge", &arguments);
                let said = said.unwrap_or_else(|said| panic!("helm {helm}, {values}: {said}"));
                for bad in ["Warning:", "deprecated", "unknown field"] {
                    assert!(!said.contains(bad), "helm {helm}, {values}: {said}");
                }
            }
            let gone = cluster.helm(second, "edge", &["uninstall", RELEASE, "--no-hooks"]);
            gone.unwrap_or_else(|said| panic!("{values}: {said}"));
        }
    }
}

/// Compares the guards of `extraEnv` and others with the API server; Helm 4 applies objects the
/// same way.
#[test]
fn the_api_server_rejects_what_the_guards_call_a_duplicate() {
    let _one = alone();
    let cluster = Cluster::start();
    let deployment = |pod: &Value, container: &Value| {
        let mut spec = json!({ "containers": [{ "name": "a", "image": "a" }] });
        let fields = |from: &Value| from.as_object().unwrap().clone();
        spec["containers"][0]
            .as_object_mut()
            .unwrap()
            .extend(fields(container));
        spec.as_object_mut().unwrap().extend(fields(pod));
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "a" },
            "spec": {
                "selector": { "matchLabels": { "app": "a" } },
                "template": { "metadata": { "labels": { "app": "a" } }, "spec": spec },
            },
        })
        .to_string()
    };
    let spread = |skew: u32, when: &str| json!({ "maxSkew": skew, "topologyKey": "z", "whenUnsatisfiable": when });
    let two = |one: &Value| json!([one, one]);
    let volume = json!({ "name": "v", "emptyDir": {} });
    let mount = json!({ "name": "v", "mountPath": "/v" });
    for (pod, container) in [
        (
            json!({}),
            json!({ "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] }),
        ),
        (
            json!({ "topologySpreadConstraints": [spread(1, "DoNotSchedule"), spread(2, "DoNotSchedule")] }),
            json!({}),
        ),
        (
            json!({ "hostAliases": two(&json!({ "ip": "10.1.2.3", "hostnames": ["a"] })) }),
            json!({}),
        ),
        (json!({ "volumes": two(&volume) }), json!({})),
        (
            json!({ "volumes": [volume] }),
            json!({ "volumeMounts": two(&mount) }),
        ),
        (
            json!({ "initContainers": [{ "name": "a", "image": "a" }] }),
            json!({}),
        ),
    ] {
        let said = cluster.apply(&deployment(&pod, &container), &[]);
        let said = said.expect_err(&format!("it took {pod}, {container}"));
        let named = said.contains("uplicate") || said.contains("must be unique");
        assert!(named, "{pod}, {container}: {said}");
    }
    let good = json!({ "topologySpreadConstraints": [spread(1, "DoNotSchedule"), spread(1, "ScheduleAnyway")] });
    cluster.apply(&deployment(&good, &json!({})), &[]).unwrap();
}

/// Enables autoscaling in a release of five replicas; returns the numbers of replicas seen from
/// then on.
fn turned_on(cluster: &Cluster, made_by: &str, namespace: &str, handed_over: bool) -> Vec<String> {
    let install = [
        "install",
        RELEASE,
        CHART,
        "--create-namespace",
        "--set=replicaCount=5",
    ];
    cluster.helm(made_by, namespace, &install).unwrap();
    let deployment = "deployment/limits-tollgate";
    let watch = [
        "--namespace",
        namespace,
        "get",
        deployment,
        "--watch",
        r#"--output=jsonpath={.spec.replicas}{"\n"}"#,
    ];
    let lines = cluster.watch(&watch);
    let commands = block("```sh\nkubectl apply --server-side");
    let mut commands = commands.lines();
    let apply: Vec<_> = commands
        .next()
        .expect("kubectl apply")
        .split_whitespace()
        .collect();
    let upgrade: Vec<_> = commands.next().expect("helm upgrade").split(' ').collect();
    if handed_over {
        let [manager, "--filename", "replicas.yaml"] = apply[..] else {
            panic!("{apply:?}");
        };
        let file = block("```yaml\n# replicas.yaml\n");
        cluster
            .apply(&file, &[manager, "--namespace", namespace])
            .unwrap();
    }
    // Only the newer Helm can; the release may be of either.
    cluster.helm(HELMS[1], namespace, &upgrade[1..]).unwrap();
    let able = r#".status.conditions[?(@.type=="AbleToScale")].status"#;
    until("the autoscaler has acted", || {
        let said = cluster.field(namespace, "hpa/limits-tollgate", able);
        let replicas = cluster.field(namespace, deployment, ".spec.replicas");
        match (said.as_deref(), replicas.as_deref()) {
            (Some("True"), Some(replicas)) if replicas != "1" => Ok(()),
            _ => Err((said, replicas, lines.seen())),
        }
    });
    // A release of Helm 3 is upgraded by Helm 3.
    let next = [
        "upgrade",
        RELEASE,
        CHART,
        "--reuse-values",
        "--set=minReadySeconds=11",
    ];
    cluster.helm(made_by, namespace, &next).unwrap();
    until("the upgrade is seen", || {
        let settled = cluster.field(namespace, deployment, ".spec.minReadySeconds");
        if settled.as_deref() == Some("11") && lines.seen().len() > 1 {
            Ok(())
        } else {
            Err((settled, lines.seen()))
        }
    });
    lines.seen()
}

#[test]
fn the_readmes_steps_hand_replicas_to_an_autoscaler() {
    let _one = alone();
    let cluster = Cluster::start();
    for made_by in HELMS {
        let version = made_by.replace('.', "-");
        let kept = turned_on(&cluster, made_by, &format!("kept-{version}"), true);
        assert!(
            kept.iter().all(|replicas| replicas == "5"),
            "helm {made_by}: {kept:?}"
        );
        // Without these steps the replicas are lost, which is why the README has them.
        let lost = turned_on(&cluster, made_by, &format!("lost-{version}"), false);
        assert!(lost.contains(&"1".to_owned()), "helm {made_by}: {lost:?}");
    }
}

/// No pod runs here, so both hooks time out.
#[test]
fn failed_hooks_do_not_outlive_their_release() {
    let _one = alone();
    let cluster = Cluster::start();
    for helm in HELMS {
        let namespace = format!("hooks-{}", helm.replace('.', "-"));
        let check = "--set=rulesCheck.enabled=true,rulesCheck.activeDeadlineSeconds=1,rulesCheck.ttlSecondsAfterFinished=1";
        let refused = cluster.helm(
            helm,
            &namespace,
            &["install", RELEASE, CHART, "--create-namespace", check],
        );
        let said = refused.expect_err("the check fails");
        assert!(said.contains("pre-install"), "helm {helm}: {said}");
        assert!(
            !cluster.exists(&namespace, "configmap/limits-tollgate-check"),
            "helm {helm}"
        );
        cluster
            .helm(helm, &namespace, &["uninstall", RELEASE])
            .unwrap();
        until(&format!("helm {helm}: the Job is gone"), || {
            !cluster.exists(&namespace, "job/limits-tollgate-check")
        });

        cluster
            .helm(helm, &namespace, &["install", RELEASE, CHART])
            .unwrap();
        let tested = cluster.helm(helm, &namespace, &["test", RELEASE, "--timeout=2s"]);
        tested.expect_err("the test pod never runs");
        until(&format!("helm {helm}: the test pod is gone"), || {
            !cluster.exists(&namespace, "pod/limits-tollgate-test")
        });
    }
}
