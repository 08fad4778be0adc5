//! The pod security standard `restricted`, rule by rule, on every pod: the Deployment's, the
//! hook's, the test's.
//!
//! Why here: an API server rejects such pods after helm has reported success.
//!
//! What it deliberately does not do: check what operators add. The containers that ci/ adds comply
//! as well.

use serde_json::{Value, json};

use crate::matrix::cases;

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
    for case in cases() {
        for (whose, pod) in pods(&case.objects) {
            assert_eq!(
                violations(pod),
                [""; 0],
                "{}, Kubernetes {}: {whose}",
                case.name,
                case.kubernetes
            );
            match whose.split(' ').next() {
                Some("\"Deployment\"") => deployments += 1,
                Some("\"Job\"") => jobs += 1,
                _ => tests += 1,
            }
        }
        for account in case
            .objects
            .iter()
            .filter(|object| object["kind"] == "ServiceAccount")
        {
            assert_eq!(account["automountServiceAccountToken"], false);
        }
    }
    // Of eleven files: production and everything-on check their rules in a hook; a socket, or a
    // release without a check, is not tested.
    assert_eq!((deployments, jobs, tests), (44, 8, 36));
}

#[test]
fn a_pod_that_is_not_restricted_is_detected() {
    let good = cases().iter().find(|case| case.name == "everything-on");
    let good = pods(&good.unwrap().objects)[0].1.clone();
    assert_eq!(violations(&good), [""; 0]);
    let planted = [
        ("/hostPID", json!(true), "hostPID"),
        (
            "/volumes/0",
            json!({ "name": "a", "hostPath": {} }),
            "a volume of the node's",
        ),
        ("/securityContext/runAsUser", json!(0), "runAsUser"),
        ("/securityContext/runAsNonRoot", json!(null), "runAsNonRoot"),
        (
            "/securityContext/seccompProfile/type",
            json!("Unconfined"),
            "seccompProfile",
        ),
        (
            "/containers/0/securityContext/privileged",
            json!(true),
            "privileged",
        ),
        (
            "/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
            "allowPrivilegeEscalation",
        ),
        (
            "/containers/1/securityContext/readOnlyRootFilesystem",
            json!(null),
            "readOnlyRootFilesystem",
        ),
        (
            "/initContainers/0/securityContext/capabilities",
            json!({}),
            "capabilities.drop",
        ),
        (
            "/containers/0/securityContext/capabilities/add",
            json!(["SYS_ADMIN"]),
            "capabilities.add",
        ),
        ("/containers/0/ports/0/hostPort", json!(1), "hostPort"),
        ("/automountServiceAccountToken", json!(true), "a token"),
        ("/enableServiceLinks", json!(true), "enableServiceLinks"),
    ];
    for (path, value, expected) in planted {
        let mut pod = good.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        match pod.pointer_mut(parent).expect(path) {
            Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
            parent => parent[field] = value,
        }
        let said = violations(&pod);
        assert!(
            said.iter().any(|said| said.ends_with(expected)),
            "{path}: {said:?}"
        );
    }
}
