//! Optional objects: autoscalers, network policy, the hook that checks rules, monitors, and what
//! operators add.
//!
//! What it deliberately does not do: check field names (`matrix`).

use serde_json::{Value, json};

use std::process::Command;

use tollgate_test_support::components::component;

use crate::rendering::{HELMS, ON, refusal, rendered, texts, yaml};

#[test]
fn autoscalers_own_the_number_of_replicas() {
    let replicas =
        |arguments: &[&str]| rendered(arguments).only("Deployment")["spec"]["replicas"].clone();
    assert_eq!(replicas(&["--set=replicaCount=0"]), 0);
    assert_eq!(
        replicas(&["--set=autoscaling.enabled=true,autoscaling.maxReplicas=3"]),
        json!(null)
    );
    assert_eq!(
        replicas(&["--values=helm/tollgate/ci/redis-cluster-values.yaml"]),
        json!(null)
    );
    let on = rendered(&[ON]);
    let scaler = &on.only("HorizontalPodAutoscaler")["spec"];
    assert_eq!(
        scaler["scaleTargetRef"]["name"],
        on.only("Deployment")["metadata"]["name"]
    );
    assert_eq!(scaler["metrics"].as_array().unwrap().len(), 3);
    assert_eq!(
        scaler["metrics"][2]["pods"]["target"]["averageValue"],
        "20k"
    );
    assert_eq!(
        scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"],
        300
    );
}

/// Egress is allowed to what is in use.
#[test]
fn the_network_policy_allows_each_peer_in_use() {
    let ports = |arguments: &[&str]| {
        let enabled = [&["--set=networkPolicy.enabled=true"], arguments].concat();
        let rendered = rendered(&enabled);
        let egress = rendered.only("NetworkPolicy")["spec"]["egress"]
            .as_array()
            .unwrap()
            .clone();
        let ports = egress
            .iter()
            .flat_map(|rule| rule["ports"].as_array().unwrap());
        ports
            .map(|port| port["port"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(&[]), [53, 53]);
    assert_eq!(ports(&["--set=redis.url=redis://a"]), [53, 53, 6379]);
    assert_eq!(
        ports(&["--set=settings.TOLLGATE_STORE=redis://a,networkPolicy.egress.redisPorts={1,2}"]),
        [53, 53, 1, 2]
    );
    assert_eq!(
        ports(&["--set=xds.enabled=true,xds.server=a:18001"]),
        [53, 53, 18001]
    );
    assert_eq!(
        ports(&["--set=settings.CONFIG_TYPE=GRPC_XDS_SOTW"]),
        [53, 53, 18000]
    );
    assert_eq!(
        ports(&["--set=networkPolicy.egress.otlpPorts={4317}"]),
        [53, 53, 4317]
    );
    // Ingress is restricted to the named clients and `helm test`.
    let production = rendered(&["--values=helm/tollgate/ci/production-values.yaml"]);
    let ingress = &production.only("NetworkPolicy")["spec"]["ingress"];
    let test = &production.only("Pod")["metadata"]["labels"];
    let asker = &ingress[0]["from"][1]["podSelector"]["matchLabels"];
    for (label, value) in asker.as_object().unwrap() {
        assert_eq!(&test[label], value);
    }
    assert_eq!(ingress[1]["from"].as_array().unwrap().len(), 1);
}

#[test]
fn a_hook_checks_the_new_rules_first() {
    let rendered = rendered(&[ON]);
    let job = rendered.only("Job");
    let hook = |object: &Value, what: &str| {
        object["metadata"]["annotations"][format!("helm.sh/{what}")].clone()
    };
    assert_eq!(hook(job, "hook"), "pre-install,pre-upgrade");
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["args"],
        json!(["check", "/etc/tollgate/rules"])
    );
    assert_eq!(
        texts(&pod["containers"][0]["env"], "name"),
        ["MERGE_DOMAIN_CONFIG"]
    );
    let maps = rendered.all("ConfigMap").into_iter();
    let mut maps =
        maps.filter(|map| map["metadata"]["name"] == pod["volumes"][0]["configMap"]["name"]);
    let map = maps.next().unwrap();
    // Created before the Job, and replaces the one of the current release.
    assert_eq!(hook(map, "hook"), "pre-install,pre-upgrade");
    assert_eq!(hook(map, "hook-weight"), "-1");
    assert_eq!(map["data"], rendered.rules().unwrap()["data"]);
    // Helm prints why a check failed. Helm deletes no hooks on uninstall: the ConfigMap is deleted
    // when the Job ends, and a failed Job by its TTL.
    assert_eq!(
        hook(job, "hook-output-log-policy"),
        "hook-succeeded,hook-failed"
    );
    assert_eq!(
        hook(job, "hook-delete-policy"),
        "before-hook-creation,hook-succeeded"
    );
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 600);
    let always = "before-hook-creation,hook-succeeded,hook-failed";
    assert_eq!(hook(map, "hook-delete-policy"), always);
    // A pod has no TTL, so Helm deletes the test's at once, after its log.
    let test = rendered.only("Pod");
    assert_eq!(
        hook(test, "hook-output-log-policy"),
        "hook-succeeded,hook-failed"
    );
    assert_eq!(hook(test, "hook-delete-policy"), always);
    // Before an installation the service account does not exist.
    assert!(pod["serviceAccountName"].is_null());
}

#[test]
fn templates_in_extra_values_are_rendered() {
    let rendered = rendered(&[ON]);
    let pod = rendered.pod();
    assert_eq!(rendered.variable("RELEASE"), "demo");
    assert_eq!(
        rendered.container()["envFrom"][0]["configMapRef"]["name"],
        "demo-more"
    );
    assert_eq!(pod["initContainers"][0]["args"][0], "--for=demo");
    assert_eq!(pod["containers"][1]["name"], "relay");
    let template = &rendered.only("Deployment")["spec"]["template"]["metadata"];
    assert_eq!(template["annotations"]["example.com/release"], "demo");
    let deployment = rendered.only("Deployment");
    assert_eq!(
        deployment["metadata"]["annotations"],
        json!({ "example.com/owner": "demo" })
    );
    assert_eq!(deployment["spec"]["progressDeadlineSeconds"], 300);
    let alias = json!({ "ip": "10.1.2.3", "hostnames": ["cache.edge", "cache"] });
    assert_eq!(pod["hostAliases"], json!([alias]));
    let names: Vec<_> = rendered
        .all("ConfigMap")
        .iter()
        .map(|map| &map["metadata"]["name"])
        .collect();
    assert!(
        names.contains(&&json!("demo-more")) && names.contains(&&json!("edge-limits-text")),
        "{names:?}"
    );
    for object in &rendered.0 {
        if !["demo-more", "edge-limits-text"]
            .contains(&object["metadata"]["name"].as_str().unwrap())
        {
            assert_eq!(
                object["metadata"]["labels"]["example.com/cost-center"],
                "edge"
            );
        }
    }
}

/// Monitors may have to be in Prometheus' namespace; their targets are in the release's.
#[test]
fn monitors_are_created_where_prometheus_looks() {
    for (values, kinds) in [
        (ON, &["ServiceMonitor", "PrometheusRule"][..]),
        (
            "--values=helm/tollgate/ci/redis-cluster-values.yaml",
            &["PodMonitor"],
        ),
    ] {
        let rendered = rendered(&[values]);
        for kind in kinds {
            let monitor = rendered.only(kind);
            assert_eq!(monitor["metadata"]["namespace"], "monitoring", "{kind}");
            if *kind != "PrometheusRule" {
                assert_eq!(
                    monitor["spec"]["namespaceSelector"]["matchNames"],
                    json!(["prod"])
                );
            }
        }
    }
    let production = rendered(&["--values=helm/tollgate/ci/production-values.yaml"]);
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(production.only(kind)["metadata"]["namespace"], "prod");
    }
}

#[test]
fn a_template_in_the_redis_url_is_rendered() {
    for (set, url) in [
        (
            "redis.url=redis://{{ .Release.Name }}-valkey.{{ .Release.Namespace }}:6379/0",
            "redis://demo-valkey.prod:6379/0",
        ),
        (
            "redis.url=redis+cluster://{{ .Values.global.valkey }},global.valkey=a",
            "redis+cluster://a",
        ),
        ("redis.url=redis://plain:6379", "redis://plain:6379"),
    ] {
        let rendered = rendered(&[&format!("--set={set}")]);
        assert_eq!(rendered.variable("TOLLGATE_STORE"), url);
    }
}

/// The `runbook_url` of every alert in groups of alerts.
fn runbooks(groups: &Value) -> Vec<String> {
    let groups = groups.as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let urls = alerts.map(|alert| alert["annotations"]["runbook_url"].as_str().unwrap());
    urls.map(str::to_owned).collect()
}

#[test]
fn runbook_urls_are_relative_until_a_prefix_makes_them_absolute() {
    let on = "--set=prometheusRule.enabled=true,alertsConfigMap.enabled=true";
    let prefix = "https://git.example.com/tollgate/blob/main/";
    let set = format!("--set=alerts.runbookUrlPrefix={prefix}");
    for (arguments, begin) in [(vec![on], ""), (vec![on, &set], prefix)] {
        let rendered = rendered(&arguments);
        let rule = rendered.only("PrometheusRule");
        let maps = rendered.all("ConfigMap");
        let mut texts = maps
            .iter()
            .filter_map(|map| map["data"]["tollgate.yaml"].as_str());
        let text = texts.next().expect("the alerts");
        for urls in [
            runbooks(&rule["spec"]["groups"]),
            runbooks(&yaml(text)[0]["groups"]),
        ] {
            assert!(urls.len() > 20, "{urls:?}");
            let expected = format!("{begin}docs/guides/alerts.md#tollgate");
            assert!(
                urls.iter().all(|url| url.starts_with(&expected)),
                "{urls:?}"
            );
        }
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        std::fs::write(file.path(), text).unwrap();
        let checked = Command::new(component("promtool/promtool"))
            .args(["check", "rules", "--lint=all", "--lint-fatal"])
            .arg(file.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}");
    }
    for wrong in [
        "git.example.com/",
        "https://git.example.com/blob/main",
        "https://a b/",
    ] {
        for version in HELMS {
            let said = refusal(
                version,
                &[&format!("--set=alerts.runbookUrlPrefix={wrong}")],
            );
            assert!(said.contains("runbookUrlPrefix"), "{wrong}: {said}");
        }
    }
}

/// A volume that one pod has at a time, which it may write.
#[test]
fn a_snapshot_has_a_volume_that_one_pod_has_at_a_time() {
    const SNAPSHOT: &str = "--values=helm/tollgate/ci/snapshot-values.yaml";
    let with = rendered(&[SNAPSHOT]);
    let claim = with.only("PersistentVolumeClaim");
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(
        claim["metadata"]["annotations"]["helm.sh/resource-policy"],
        "keep"
    );
    let deployment = &with.only("Deployment")["spec"];
    assert_eq!(deployment["strategy"], json!({"type": "Recreate"}));
    let pod = &deployment["template"]["spec"];
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    let of_rules = rendered(&[]).only("Deployment")["spec"]["template"]["spec"]
        ["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap();
    assert_eq!(pod["terminationGracePeriodSeconds"], of_rules + 30);
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "snapshot");
    assert_eq!(
        volume.unwrap()["persistentVolumeClaim"]["claimName"],
        claim["metadata"]["name"]
    );
    let own = rendered(&[SNAPSHOT, "--set=snapshot.existingClaim=mine"]);
    assert!(own.all("PersistentVolumeClaim").is_empty());
    // A group that is set stays.
    let other = rendered(&[SNAPSHOT, "--set=podSecurityContext.fsGroup=7"]);
    let context = &other.only("Deployment")["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(context["fsGroup"], 7);
}
