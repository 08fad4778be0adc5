//! Rendered objects: security, drain, Services, rules, spread.
//!
//! What it deliberately does not do: check that the binary accepts them (`settings`,
//! `running_pod`).

use serde_json::{Value, json};

use crate::rendering::{
    EXAMPLE, HELMS, OFF, ON, Rendered, rendered, rendered_by, texts, values_files,
};

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
fn rollouts_surge_and_are_not_caused_by_rules() {
    let [before, after] = ["60", "61"].map(|requests| {
        let limit = format!(r#"{{"unit":"minute","requests_per_unit":{requests}}}"#);
        let descriptors = format!(r#"[{{"key":"k","rate_limit":{limit}}}]"#);
        let rules = format!(r#"{{"a.yaml":{{"domain":"a","descriptors":{descriptors}}}}}"#);
        rendered(&[&format!("--set-json=rules={rules}")])
    });
    assert_ne!(before.rules(), after.rules());
    assert_eq!(before.only("Deployment"), after.only("Deployment"));
    assert_eq!(
        before.only("Deployment")["spec"]["strategy"]["rollingUpdate"],
        json!({ "maxUnavailable": 0, "maxSurge": "25%" })
    );
}

#[test]
fn the_rules_are_mounted_as_an_updatable_directory() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let arguments = rendered.container()["args"].as_array().unwrap();
        let named = arguments.contains(&json!("/etc/tollgate/rules"));
        if texts(&rendered.container()["env"], "name").contains(&"CONFIG_TYPE") {
            assert!(!named && rendered.rules().is_none(), "{values}");
            continue;
        }
        assert!(named, "{values}");
        let volume = &rendered.pod()["volumes"][0];
        assert_eq!(volume["name"], "rules");
        match rendered.rules() {
            None => assert_eq!(volume["configMap"]["name"], "limits"),
            Some(made) => assert_eq!(volume["configMap"]["name"], made["metadata"]["name"]),
        }
        let mounts = rendered.container()["volumeMounts"].as_array().unwrap();
        let mounts: Vec<_> = mounts
            .iter()
            .filter(|mount| mount["name"] == "rules")
            .collect();
        let annotations =
            &rendered.only("Deployment")["spec"]["template"]["metadata"]["annotations"];
        if values.contains("cert-manager") {
            // Labels of the selector are immutable and unique to these pods.
            let files: Vec<_> = mounts
                .iter()
                .map(|mount| mount["subPath"].as_str().unwrap())
                .collect();
            assert_eq!(files, ["edge.yaml", "shop.yaml"]);
            assert_eq!(mounts[0]["mountPath"], "/etc/tollgate/rules/edge.yaml");
            assert!(annotations["checksum/rules"].is_string());
        } else {
            assert_eq!(mounts[0]["mountPath"], "/etc/tollgate/rules");
            assert!(mounts[0]["subPath"].is_null() && mounts[0]["subPathExpr"].is_null());
            assert_eq!(mounts.len(), 1);
            assert!(annotations["checksum/rules"].is_null(), "{values}");
        }
    }
}

#[test]
fn changed_rules_cause_a_rollout_when_configured() {
    let checksum = |set: &str| {
        let rendered = rendered(&["--set=config.reload=rollout", set]);
        rendered.only("Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/rules"]
            .clone()
    };
    let first = checksum("--set=rules.a=domain: a");
    assert_ne!(first, checksum("--set=rules.a=domain: b"));
    assert_ne!(first, checksum("--set=rules.b=domain: a"));
    assert_eq!(first, checksum("--set=rules.a=domain: a,replicaCount=2"));
}

#[test]
fn services_reach_the_pods_by_named_ports() {
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let template = &rendered.only("Deployment")["spec"]["template"];
        let ports = &rendered.container()["ports"];
        // `admin_service` checks the third.
        assert_eq!(texts(ports, "name")[..2], ["grpc", "http"]);
        let mut headless = 0;
        let mut admin = 0;
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
            let speaks = match &*values {
                ON => "grpc",
                tls if tls.contains("/tls-") || tls.contains("cert-manager") => "https",
                _ => "kubernetes.io/h2c",
            };
            let names = texts(&spec["ports"], "name");
            if names == ["admin"] {
                admin += 1;
                continue;
            }
            if names == ["http"] {
                assert_eq!(spec["ports"][0]["appProtocol"], "http");
                assert_eq!((values.as_str(), &spec["type"]), (ON, &json!("ClusterIP")));
                continue;
            }
            assert_eq!(spec["ports"][0]["appProtocol"], speaks, "{values}");
            if spec["clusterIP"] == "None" {
                headless += 1;
                assert_eq!(names, ["grpc"]);
                assert!(spec["publishNotReadyAddresses"].is_null());
            } else if values == ON {
                assert_eq!(names, ["grpc"]);
            } else {
                assert_eq!(names, ["grpc", "http"]);
            }
        }
        let wanted = usize::from(values != OFF);
        let apart = usize::from(values == ON);
        assert_eq!(
            (headless, rendered.all("Service").len()),
            (wanted, 1 + wanted + apart + admin)
        );
        let selector = &rendered.only("Deployment")["spec"]["selector"]["matchLabels"];
        assert_eq!(selector, &rendered.all("Service")[0]["spec"]["selector"]);
        // Pods that do not serve get no probes.
        for alone in rendered.all("Pod").into_iter().chain(rendered.all("Job")) {
            let labels = match alone["kind"].as_str() {
                Some("Job") => &alone["spec"]["template"]["metadata"]["labels"],
                _ => &alone["metadata"]["labels"],
            };
            let selector = selector.as_object().unwrap();
            assert!(
                selector.iter().any(|(name, value)| labels[name] != *value),
                "{values}: {labels}"
            );
        }
    }
}

/// A load balancer exposes gRPC, and neither metrics nor `/json`, which stay where a monitor finds
/// them.
#[test]
fn a_load_balancer_can_expose_grpc_only() {
    let of_type = |rendered: &Rendered, kind: &str| {
        let services = rendered.all("Service").into_iter();
        let found = services.filter(|service| service["spec"]["type"] == kind);
        found.cloned().collect::<Vec<_>>()
    };
    let on = rendered(&[ON]);
    let [ref outside] = of_type(&on, "LoadBalancer")[..] else {
        panic!("one Service is a load balancer");
    };
    let spec = &outside["spec"];
    assert_eq!(spec["ports"].as_array().unwrap().len(), 1);
    assert_eq!(spec["ports"][0]["port"], 8081);
    assert_eq!(spec["ports"][0]["nodePort"], 30081);
    assert_eq!(
        spec["loadBalancerSourceRanges"],
        json!(["192.0.2.0/24", "2001:db8::/32"])
    );
    assert_eq!(spec["externalTrafficPolicy"], "Local");
    // The monitor selects the other Service by its labels and port name.
    let inside = of_type(&on, "ClusterIP").into_iter();
    let mut inside = inside.filter(|service| service["spec"]["ports"][0]["name"] == "http");
    let inside = inside.next().expect("a Service for HTTP");
    let monitor = &on.only("ServiceMonitor")["spec"];
    for (label, value) in monitor["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&inside["metadata"]["labels"][label], value);
    }
    assert_eq!(monitor["endpoints"][0]["port"], "http");
    for service in on.all("Service") {
        assert_eq!(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    }
    // By default Kubernetes decides.
    let plain = rendered(&["--set=service.type=LoadBalancer"]);
    let spec = &of_type(&plain, "LoadBalancer")[0]["spec"];
    assert_eq!(texts(&spec["ports"], "name"), ["grpc", "http"]);
    for field in [
        "externalTrafficPolicy",
        "ipFamilies",
        "ipFamilyPolicy",
        "loadBalancerSourceRanges",
    ] {
        assert!(spec[field].is_null(), "{field}");
    }
    let ports = rendered(&[
        "--set=service.type=NodePort,service.nodePorts.grpc=30081,service.nodePorts.http=30080",
    ]);
    let ports = &of_type(&ports, "NodePort")[0]["spec"]["ports"];
    assert_eq!(
        (&ports[0]["nodePort"], &ports[1]["nodePort"]),
        (&json!(30081), &json!(30080))
    );
}

/// `PreferClose` is deprecated in favour of `PreferSameZone`, which has the same meaning.
#[test]
fn traffic_distribution_uses_the_name_of_each_kubernetes() {
    for (wanted, kubernetes, named) in [
        ("PreferSameZone", "1.29", json!(null)),
        ("PreferSameZone", "1.30", json!("PreferClose")),
        ("PreferSameZone", "1.33", json!("PreferClose")),
        ("PreferSameZone", "1.34", json!("PreferSameZone")),
        ("PreferSameZone", "1.37", json!("PreferSameZone")),
        ("PreferClose", "1.33", json!("PreferClose")),
        ("PreferClose", "1.36", json!("PreferSameZone")),
        ("PreferSameNode", "1.33", json!(null)),
        ("PreferSameNode", "1.34", json!("PreferSameNode")),
        ("", "1.36", json!(null)),
    ] {
        let rendered = rendered(&[
            &format!("--set=service.trafficDistribution={wanted}"),
            &format!("--kube-version={kubernetes}"),
            "--set=headlessService.enabled=false",
        ]);
        assert_eq!(
            rendered.only("Service")["spec"]["trafficDistribution"],
            named,
            "{wanted}, Kubernetes {kubernetes}"
        );
    }
}

/// The sleep before shutdown, the pod's drain settings, its grace period.
fn stop(arguments: &[&str]) -> (Value, u64, u64) {
    let rendered = rendered(arguments);
    let slept = rendered.container()["lifecycle"]["preStop"]["sleep"]["seconds"].clone();
    let grace = rendered.pod()["terminationGracePeriodSeconds"].as_u64();
    (
        slept,
        seconds(rendered.variable("TOLLGATE_DRAIN_DELAY")),
        grace.unwrap(),
    )
}

#[test]
fn shutdown_takes_the_same_time_without_the_sleep_hook() {
    const SET: &str = "--set=preStopSleepSeconds=4,drainDelaySeconds=3,drainTimeoutSeconds=2";
    assert_eq!(stop(&["--kube-version=1.30", SET]), (json!(4), 3, 14));
    assert_eq!(stop(&["--kube-version=1.29", SET]), (json!(null), 7, 14));
    // For a long time Kubernetes rejected a sleep of zero.
    assert_eq!(stop(&["--set=preStopSleepSeconds=0"]), (json!(null), 5, 15));
    let own = "--set=lifecycle.preStop.httpGet.port=http";
    assert_eq!(
        stop(&["--kube-version=1.29", SET, own]),
        (json!(null), 3, 10)
    );
}

/// Kubernetes' gRPC probe supports neither TLS nor unix sockets, and would always fail.
#[test]
fn readiness_is_probed_where_possible() {
    let probe = |arguments: &[&str]| rendered(arguments).container()["readinessProbe"].clone();
    let by_grpc = json!({ "port": 8081, "service": "ratelimit" });
    let by_http = json!({ "path": "/readyz", "port": "http" });
    assert_eq!(probe(&[])["grpc"], by_grpc);
    assert_eq!(probe(&[])["handler"], json!(null));
    assert_eq!(
        probe(&["--set=readinessProbe.handler=httpGet"])["httpGet"],
        by_http
    );
    for values in ["tls", "cert-manager", "xds"] {
        let probe = probe(&[&format!("--values=helm/tollgate/ci/{values}-values.yaml")]);
        assert_eq!(
            (&probe["grpc"], &probe["httpGet"]),
            (&json!(null), &by_http),
            "{values}"
        );
    }
    assert_eq!(
        probe(&["--set=settings.GRPC_SERVER_USE_TLS=true"])["httpGet"],
        by_http
    );
    // A pod that waits for rules is alive.
    for alive in ["startupProbe", "livenessProbe"] {
        assert_eq!(
            rendered(&[]).container()[alive]["httpGet"]["path"],
            "/livez"
        );
    }
}

#[test]
fn numbers_stay_integers_and_texts_stay_unchanged() {
    for version in HELMS {
        let set =
            "--set=settings.TOLLGATE_MAILBOX_CHECKS_MAX=30000000,settings.NEAR_LIMIT_RATIO=0.5";
        let age = "--set=settings.GRPC_MAX_CONNECTION_AGE=0";
        let by_flag = rendered_by(version, &[set, age]);
        assert_eq!(by_flag.variable("GRPC_MAX_CONNECTION_AGE"), "0");
        assert_eq!(by_flag.variable("TOLLGATE_MAILBOX_CHECKS_MAX"), "30000000");
        assert_eq!(by_flag.variable("NEAR_LIMIT_RATIO"), "0.5");

        let full = rendered_by(version, &[ON]);
        assert_eq!(full.variable("TOLLGATE_MAILBOX_CHECKS_MAX"), "65536");
        assert_eq!(full.variable("NEAR_LIMIT_RATIO"), "0.9");
        let rules = &full.rules().unwrap()["data"];
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
fn bucket_memory_fits_the_memory_limit() {
    // Memory used without any bucket, connections included.
    const BESIDE_MIB: u64 = 64;
    let full = rendered(&[ON]);
    let said = full.variable("TOLLGATE_MEMORY_MAX");
    let limit = &full.container()["resources"]["limits"]["memory"];
    let limit = limit.as_str().unwrap().replace("1Gi", "1024Mi");
    let mib = |text: &str, unit| text.trim_end_matches(unit).parse::<u64>().unwrap();
    let (said, limit) = (mib(said.as_str().unwrap(), "MiB"), mib(&limit, "Mi"));
    assert!(said + BESIDE_MIB <= limit, "{said} MiB of {limit}");
    // By default it is half of the limit, which the service reads itself.
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
    let full = spread(&rendered(&[ON]));
    assert_eq!(
        full[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/name"],
        "limits"
    );
    assert_eq!(
        full[1]["labelSelector"],
        json!({ "matchExpressions": [{ "key": "team", "operator": "Exists" }] })
    );
    assert!(spread(&rendered(&[OFF])).is_null());
}
