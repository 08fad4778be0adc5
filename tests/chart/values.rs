//! Names and versions.
//!
//! What it deliberately does not do: refusals (`invalid_values`), or whole files of values
//! (`matrix`).

use crate::chart::matrix::KUBERNETES;
use crate::chart::rendering::{HELMS, helm, read, refusal, rendered, validated, yaml};

/// Errors of the API server for an object's fields that older helm does not check.
fn validate(manifests: &str) {
    for (_, complaints) in validated(&["1.34", "1.37"].map(|version| (version, manifests))) {
        assert_eq!(complaints, [""; 0]);
    }
}

#[test]
fn the_longest_release_name_gives_valid_names() {
    let name = "a".repeat(53);
    let text = helm(HELMS[0], &["template", &name, "helm/tollgate"]).unwrap();
    validate(&text);
    for object in yaml(&text) {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{name}");
    }
}

#[test]
fn names_that_look_like_numbers_stay_text() {
    let arguments = ["template", "n1", "helm/tollgate", "--namespace", "7"];
    let set = ["--set-string=existingConfigMap=12,nameOverride=34,fullnameOverride=null"];
    for version in HELMS {
        let text = helm(version, &[&arguments[..], &set[..]].concat()).unwrap();
        validate(&text);
    }
}

#[test]
fn an_unsupported_kubernetes_is_rejected() {
    let promised = format!("kubeVersion: \">={}.0-0\"", KUBERNETES[0]);
    assert!(read("helm/tollgate/Chart.yaml").contains(&promised));
    rendered(&["--kube-version=1.27"]);
    let said = refusal(HELMS[1], &["--kube-version=1.26"]);
    assert!(said.contains("incompatible with Kubernetes"), "{said}");
}

#[test]
fn chart_and_binary_have_the_same_version() {
    let metadata = &yaml(&read("helm/tollgate/Chart.yaml"))[0];
    assert_eq!(metadata["appVersion"], env!("CARGO_PKG_VERSION"));
    let image = rendered(&[]).container()["image"].clone();
    assert_eq!(image, concat!("tollgate:", env!("CARGO_PKG_VERSION")));
}
