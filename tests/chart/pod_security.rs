//! The pod security standard `restricted`, rule by rule, on every pod: the Deployment's, the
//! hook's, the test's.
//!
//! Why here: an API server rejects such pods after helm has reported success.
//!
//! What it deliberately does not do: check what operators add. The containers that ci/ adds comply
//! as well.

use serde_json::{Value, json};

use crate::chart::matrix::KUBERNETES;
use crate::chart::rendering::{ON, Rendered, rendered, values_files};

/// Pods of a render: their owner and spec.
fn pods(objects: &[Value]) -> Vec<(String, &Value)> {
    let mut pods = Vec::new();
    for object in objects {
        let spec = match object["kind"].as_str() {
            Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
            Some("Pod") => &object["spec"],
            _ => continue,
        };
        pods.push((
            format!("{} {}", object["kind"], object["metadata"]["name"]),
            spec,
        ));
    }
    pods
}

/// Violations of the standard.
fn violations(pod: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let mut hold = |good: bool, what: &str| {
        if !good {
            violations.push(what.to_owned());
        }
    };
    for shared in ["hostNetwork", "hostPID", "hostIPC"] {
        hold(pod[shared] != true, shared);
    }
    let kinds = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let fields = volume.as_object().expect("a volume").keys();
        let mut fields = fields.filter(|field| *field != "name");
        hold(
            fields.all(|field| kinds.contains(&field.as_str())),
            "a volume of the node's",
        );
    }
    let of_pod = &pod["securityContext"];
    hold(of_pod["sysctls"].is_null(), "sysctls");
    let containers = ["containers", "initContainers"].map(|list| pod[list].as_array());
    for container in containers.into_iter().flatten().flatten() {
        violations.extend(container_violations(container, of_pod));
    }
    let mut hold = |good: bool, what: &str| {
        if !good {
            violations.push(what.to_owned());
        }
    };
    hold(pod["automountServiceAccountToken"] == false, "a token");
    // A Service named `grpc` would set GRPC_PORT.
    hold(pod["enableServiceLinks"] == false, "enableServiceLinks");
    violations
}

/// Violations of the standard by a container.
fn container_violations(container: &Value, of_pod: &Value) -> Vec<String> {
    let own = &container["securityContext"];
    let either = |field: &str| {
        if own[field].is_null() {
            &of_pod[field]
        } else {
            &own[field]
        }
    };
    let name = container["name"].as_str().expect("a name");
    let mut violations = Vec::new();
    let mut hold = |good: bool, what: &str| {
        if !good {
            violations.push(format!("{name}: {what}"));
        }
    };
    hold(own["privileged"] != true, "privileged");
    hold(
        own["allowPrivilegeEscalation"] == false,
        "allowPrivilegeEscalation",
    );
    hold(either("runAsNonRoot") == true, "runAsNonRoot");
    hold(either("runAsUser") != 0, "runAsUser");
    let profile = &either("seccompProfile")["type"];
    hold(
        profile == "RuntimeDefault" || profile == "Localhost",
        "seccompProfile",
    );
    let dropped = own["capabilities"]["drop"].as_array();
    hold(
        dropped.is_some_and(|dropped| dropped.contains(&json!("ALL"))),
        "capabilities.drop",
    );
    let added = own["capabilities"]["add"].as_array().into_iter().flatten();
    hold(
        added.clone().all(|added| added == "NET_BIND_SERVICE"),
        "capabilities.add",
    );
    hold(
        own["procMount"].is_null() && either("seLinuxOptions").is_null(),
        "procMount, seLinuxOptions",
    );
    let ports = container["ports"].as_array().into_iter().flatten();
    hold(
        ports.clone().all(|port| port["hostPort"].is_null()),
        "hostPort",
    );
    // Further rules of ours.
    hold(
        own["readOnlyRootFilesystem"] == true,
        "readOnlyRootFilesystem",
    );
    violations
}

#[test]
fn every_pod_is_restricted() {
    let (mut deployments, mut jobs, mut tests) = (0, 0, 0);
    for values in values_files() {
        for kubernetes in [KUBERNETES[0], KUBERNETES[KUBERNETES.len() - 1]] {
            let version = format!("--kube-version={kubernetes}");
            let Rendered(objects) = rendered(&[&values, &version]);
            for (whose, pod) in pods(&objects) {
                let found = violations(pod);
                assert_eq!(found, [""; 0], "{values}, {kubernetes}: {whose}");
                match whose.split(' ').next() {
                    Some("\"Deployment\"") => deployments += 1,
                    Some("\"Job\"") => jobs += 1,
                    _ => tests += 1,
                }
            }
            let mut accounts = objects.iter().filter(|it| it["kind"] == "ServiceAccount");
            assert!(accounts.all(|account| account["automountServiceAccountToken"] == false));
        }
    }
    // Of eleven files: production and everything-on check their rules in a hook; a socket, or a
    // release without a check, is not tested.
    assert_eq!((deployments, jobs, tests), (22, 4, 18));
}

/// A field of a pod, a value that is not restricted, and what is then reported.
const PLANTED: &str = r#"
/hostPID true hostPID
/volumes/0 {"name":"a","hostPath":{}} a volume of the node's
/securityContext/runAsUser 0 runAsUser
/securityContext/runAsNonRoot null runAsNonRoot
/securityContext/seccompProfile/type "Unconfined" seccompProfile
/containers/0/securityContext/privileged true privileged
/containers/0/securityContext/allowPrivilegeEscalation true allowPrivilegeEscalation
/containers/1/securityContext/readOnlyRootFilesystem null readOnlyRootFilesystem
/initContainers/0/securityContext/capabilities {} capabilities.drop
/containers/0/securityContext/capabilities/add ["SYS_ADMIN"] capabilities.add
/containers/0/ports/0/hostPort 1 hostPort
/automountServiceAccountToken true a token
/enableServiceLinks true enableServiceLinks
"#;

#[test]
fn a_pod_that_is_not_restricted_is_detected() {
    let good = pods(&rendered(&[ON]).0)[0].1.clone();
    assert_eq!(violations(&good), [""; 0]);
    for planted in PLANTED.trim().lines() {
        let mut words = planted.splitn(3, ' ');
        let mut next = || words.next().unwrap();
        let (path, value, expected) = (next(), next(), next());
        let value: Value = serde_json::from_str(value).expect(planted);
        let mut pod = good.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        match pod.pointer_mut(parent).expect(path) {
            Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
            parent => parent[field] = value,
        }
        let mut said = violations(&pod).into_iter();
        assert!(said.any(|said| said.ends_with(expected)), "{planted}");
    }
}
