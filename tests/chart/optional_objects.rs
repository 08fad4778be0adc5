//! Optional objects: the hook that checks rules, and the alerts.
//!
//! What it deliberately does not do: compare whole objects (`snapshots`).

use std::process::Command;

use serde_json::Value;
use tollgate_test_support::components::component;

use crate::chart::rendering::{ON, rendered, yaml};

/// A job checks the new rules before an upgrade: its `ConfigMap` is created before it, has the new
/// rules, and is deleted after it.
#[test]
fn a_hook_checks_the_new_rules_first() {
    let rendered = rendered(&[ON]);
    let job = rendered.only("Job");
    let hook = |object: &Value, what: &str| {
        object["metadata"]["annotations"][format!("helm.sh/{what}")].clone()
    };
    let pod = &job["spec"]["template"]["spec"];
    let maps = rendered.all("ConfigMap").into_iter();
    let mut maps =
        maps.filter(|map| map["metadata"]["name"] == pod["volumes"][0]["configMap"]["name"]);
    let map = maps.next().unwrap();
    for object in [job, map] {
        assert_eq!(hook(object, "hook"), "pre-install,pre-upgrade");
    }
    assert_eq!(hook(map, "hook-weight"), "-1");
    assert_eq!(map["data"], rendered.rules().unwrap()["data"]);
    // Helm prints why a check failed, and deletes no hooks on uninstall: a failed Job is deleted by
    // its TTL. A pod has no TTL, so Helm deletes the test's at once, after its log.
    let test = rendered.only("Pod");
    for object in [job, test] {
        let printed = hook(object, "hook-output-log-policy");
        assert_eq!(printed, "hook-succeeded,hook-failed");
    }
    let succeeded = "before-hook-creation,hook-succeeded";
    assert_eq!(hook(job, "hook-delete-policy"), succeeded);
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 600);
    for object in [map, test] {
        let deleted = hook(object, "hook-delete-policy");
        assert_eq!(deleted, format!("{succeeded},hook-failed"));
    }
    // Before an installation the service account does not exist.
    assert!(pod["serviceAccountName"].is_null());
}

/// The `runbook_url` of every alert in groups of alerts; none where an alert has none.
fn runbooks(groups: &Value) -> Vec<Option<String>> {
    let groups = groups.as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let urls = alerts.map(|alert| alert["annotations"]["runbook_url"].as_str());
    urls.map(|url| url.map(str::to_owned)).collect()
}

#[test]
fn alerts_have_runbook_urls_where_a_prefix_makes_them_absolute() {
    let on = "--set=prometheusRule.enabled=true,alertsConfigMap.enabled=true";
    let prefix = "https://git.example.com/tollgate/blob/main/";
    let set = format!("--set=alerts.runbookUrlPrefix={prefix}");
    for (arguments, begin) in [(vec![on], None), (vec![on, &set], Some(prefix))] {
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
            let expected = begin.map(|begin| format!("{begin}docs/guides/alerts.md#tollgate"));
            let as_expected = |url: &Option<String>| match (url, &expected) {
                (Some(url), Some(begin)) => url.starts_with(begin),
                (url, expected) => url.is_none() && expected.is_none(),
            };
            assert!(urls.iter().all(as_expected), "{urls:?}");
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
}
