//! What the rendered objects say: security, drain, Services, rules, spread.
//!
//! What it deliberately does not do: ask whether the binary understands it (`settings`, `running_pod`).

use serde_json::{Value, json};

use crate::rendering::{
    EXAMPLE, FULL, HELMS, OWN_CONFIG_MAP, Rendered, rendered, rendered_by, texts, values_files,
};

/// The object's numbers in seconds.
fn seconds(text: &Value) -> u64 {
    let text = text.as_str().expect("a text");
    text.trim_end_matches('s').parse().expect("seconds")
}

fn variable<'r>(rendered: &'r Rendered, name: &str) -> &'r Value {
    let variables = rendered.container()["env"].as_array().unwrap();
    let mut found = variables.iter().filter(|variable| variable["name"] == name);
    let value = &found.next().expect(name)["value"];
    assert!(found.next().is_none(), "{name} is set twice");
    value
}

/// The pod security standard `restricted`, point by point, and what we add.
#[test]
fn every_pod_is_restricted() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let (pod, container) = (rendered.pod(), rendered.container());
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            })
        );
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            })
        );
        for shared in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert!(pod[shared].is_null(), "{shared}");
        }
        let volumes = pod["volumes"].as_array().unwrap();
        // Nothing of the node's.
        let is_given =
            |volume: &Value| volume["configMap"].is_object() || volume["secret"].is_object();
        assert!(volumes.iter().all(is_given));
        assert_eq!(pod["automountServiceAccountToken"], false);
        // A Service called `grpc` would set GRPC_PORT.
        assert_eq!(pod["enableServiceLinks"], false);
        assert!(container["resources"]["limits"]["cpu"].is_null());
        for account in rendered.all("ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false);
            assert_eq!(account["metadata"]["name"], pod["serviceAccountName"]);
        }
    }
}

#[test]
fn the_grace_period_outlasts_the_drain() {
    let mut cases = values_files();
    cases.push("--set=drainDelaySeconds=0,drainTimeoutSeconds=0".to_owned());
    cases.push("--set=drainDelaySeconds=3600,drainTimeoutSeconds=600".to_owned());
    cases.push("--set=terminationGracePeriodSeconds=11".to_owned());
    for values in cases {
        let rendered = rendered(&[&values]);
        let drain = seconds(variable(&rendered, "TOLLGATE_DRAIN_DELAY"))
            + seconds(variable(&rendered, "TOLLGATE_DRAIN_TIMEOUT"));
        let grace = rendered.pod()["terminationGracePeriodSeconds"].as_u64();
        assert!(grace.unwrap() > drain, "{values}");
    }
}

#[test]
fn pods_are_replaced_new_before_old_and_not_because_rules_changed() {
    let [before, after] = ["60", "61"].map(|requests| {
        let limit = format!(r#"{{"unit":"minute","requests_per_unit":{requests}}}"#);
        let descriptors = format!(r#"[{{"key":"k","rate_limit":{limit}}}]"#);
        let rules = format!(r#"{{"a.yaml":{{"domain":"a","descriptors":{descriptors}}}}}"#);
        rendered(&[&format!("--set-json=rules={rules}")])
    });
    assert_ne!(before.only("ConfigMap"), after.only("ConfigMap"));
    assert_eq!(before.only("Deployment"), after.only("Deployment"));
    assert_eq!(
        before.only("Deployment")["spec"]["strategy"]["rollingUpdate"],
        json!({ "maxUnavailable": 0, "maxSurge": 1 })
    );
}

#[test]
fn the_rules_are_mounted_as_a_directory_that_can_change() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let mounts = rendered.container()["volumeMounts"].as_array().unwrap();
        let mount = &mounts[0];
        assert_eq!(mount["mountPath"], "/etc/tollgate/rules");
        let by_xds = texts(&rendered.container()["env"], "name").contains(&"CONFIG_TYPE");
        let arguments = rendered.container()["args"].as_array().unwrap();
        assert_eq!(arguments.contains(&mount["mountPath"]), !by_xds, "{values}");
        assert!(mount["subPath"].is_null() && mount["subPathExpr"].is_null());
        let volume = &rendered.pod()["volumes"][0];
        assert_eq!(volume["name"], mount["name"]);
        match rendered.all("ConfigMap")[..] {
            [] => assert_eq!(volume["configMap"]["name"], "limits"),
            [made] => assert_eq!(volume["configMap"]["name"], made["metadata"]["name"]),
            _ => panic!("one ConfigMap at most"),
        }
    }
}

#[test]
fn services_reach_the_pods_by_ports_that_have_names() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let template = &rendered.only("Deployment")["spec"]["template"];
        let ports = &rendered.container()["ports"];
        assert_eq!(texts(ports, "name"), ["grpc", "http"]);
        let mut headless = 0;
        for service in rendered.all("Service") {
            let spec = &service["spec"];
            for (label, value) in spec["selector"].as_object().unwrap() {
                assert_eq!(&template["metadata"]["labels"][label], value);
            }
            for port in spec["ports"].as_array().unwrap() {
                let named = ports.as_array().unwrap().iter();
                let mut named = named.filter(|named| named["name"] == port["targetPort"]);
                assert_eq!(named.next().unwrap()["containerPort"], port["port"]);
            }
            if spec["clusterIP"] == "None" {
                headless += 1;
                assert_eq!(texts(&spec["ports"], "name"), ["grpc"]);
                assert!(spec["publishNotReadyAddresses"].is_null());
            } else {
                assert_eq!(texts(&spec["ports"], "name"), ["grpc", "http"]);
            }
        }
        assert_eq!((headless, rendered.all("Service").len()), (1, 2));
        let selector = &rendered.only("Deployment")["spec"]["selector"]["matchLabels"];
        assert_eq!(selector, &rendered.all("Service")[0]["spec"]["selector"]);
    }
}

#[test]
fn numbers_stay_whole_and_texts_stay_as_they_stand() {
    for version in HELMS {
        let set =
            "--set=settings.TOLLGATE_MAILBOX_CHECKS_MAX=30000000,settings.NEAR_LIMIT_RATIO=0.5";
        let age = "--set=settings.GRPC_MAX_CONNECTION_AGE=0";
        let by_flag = rendered_by(version, &[set, age]);
        assert_eq!(variable(&by_flag, "GRPC_MAX_CONNECTION_AGE"), "0");
        assert_eq!(
            variable(&by_flag, "TOLLGATE_MAILBOX_CHECKS_MAX"),
            "30000000"
        );
        assert_eq!(variable(&by_flag, "NEAR_LIMIT_RATIO"), "0.5");

        let full = rendered_by(version, &[FULL]);
        assert_eq!(variable(&full, "TOLLGATE_MAILBOX_CHECKS_MAX"), "65536");
        assert_eq!(variable(&full, "NEAR_LIMIT_RATIO"), "0.9");
        let rules = &full.only("ConfigMap")["data"];
        let edge = rules["edge.yaml"].as_str().unwrap();
        assert!(edge.contains("requests_per_unit: 4294967295\n"), "{edge}");
        assert!(edge.contains("value: \"yes\"\n"), "{edge}");
        let shop = rules["shop.yaml"].as_str().unwrap();
        assert!(
            shop.starts_with("# A comment stays.\ndomain: shop\n"),
            "{shop}"
        );
        assert!(shop.contains("shadow_mode: yes\n"), "{shop}");
    }
    let null =
        rendered(&["--set-json=settings={\"TOLLGATE_MAILBOX_CHECKS_MAX\":null,\"HOST\":null}"]);
    assert_eq!(
        texts(&null.container()["env"], "name"),
        ["TOLLGATE_DRAIN_DELAY", "TOLLGATE_DRAIN_TIMEOUT"]
    );
}

#[test]
fn what_buckets_may_take_fits_the_memory_limit() {
    // What is used with no bucket at all, connections included.
    const BESIDE_MIB: u64 = 64;
    let full = rendered(&[FULL]);
    let said = variable(&full, "TOLLGATE_MEMORY_MAX");
    let limit = &full.container()["resources"]["limits"]["memory"];
    let limit = limit.as_str().unwrap().replace("1Gi", "1024Mi");
    let mib = |text: &str, unit| text.trim_end_matches(unit).parse::<u64>().unwrap();
    let (said, limit) = (mib(said.as_str().unwrap(), "MiB"), mib(&limit, "Mi"));
    assert!(said + BESIDE_MIB <= limit, "{said} MiB of {limit}");
    // Unless something is said it is half of the limit, which the service reads itself.
    let example = rendered(&[EXAMPLE]);
    let names = texts(&example.container()["env"], "name");
    assert!(!names.contains(&"TOLLGATE_MEMORY_MAX"), "{names:?}");
    assert!(example.container()["resources"]["limits"]["memory"].is_string());
}

#[test]
fn pods_are_spread_by_selectors_that_select_them() {
    let spread = |rendered: &Rendered| rendered.pod()["topologySpreadConstraints"].clone();
    let pods = rendered(&[]).only("Deployment")["spec"]["selector"].clone();
    assert_eq!(spread(&rendered(&[]))[0]["labelSelector"], pods);
    let full = spread(&rendered(&[FULL]));
    assert_eq!(
        full[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/name"],
        "limits"
    );
    assert_eq!(
        full[1]["labelSelector"],
        json!({ "matchExpressions": [{ "key": "team", "operator": "Exists" }] })
    );
    assert!(spread(&rendered(&[OWN_CONFIG_MAP])).is_null());
}
