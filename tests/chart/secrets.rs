//! Secrets: files named by variables, and the certificate from cert-manager.
//!
//! What it deliberately does not do: create Secrets. The chart uses existing ones.

use serde_json::{Value, json};

use crate::rendering::rendered;

/// Values file, variable, volume, Secret and its key.
const SECRETS: &str = "\
redis-cluster REDIS_TLS_CACERT redis-tls tollgate-redis-tls ca.crt
redis-cluster REDIS_TLS_CLIENT_CERT redis-tls tollgate-redis-tls tls.crt
redis-cluster REDIS_TLS_CLIENT_KEY redis-tls tollgate-redis-tls tls.key
redis-cluster TOLLGATE_STORE_PASSWORD_FILE redis tollgate-redis password
redis-cluster TOLLGATE_STORE_HASH_KEY_FILE redis tollgate-redis hash-key
tls GRPC_SERVER_TLS_CERT tls tollgate-grpc tls.crt
tls GRPC_SERVER_TLS_KEY tls tollgate-grpc tls.key
tls GRPC_CLIENT_TLS_CACERT client-ca envoy-ca ca.pem
production TOLLGATE_ADMIN_TOKEN_FILE admin-token tollgate-admin token
production TOLLGATE_ADMIN_TLS_CERT admin-tls tollgate-admin-tls tls.crt
production TOLLGATE_ADMIN_TLS_KEY admin-tls tollgate-admin-tls tls.key
production TOLLGATE_VALUE_HASH_KEY_FILE value-hash-key tollgate-admin hash-key
cert-manager TOLLGATE_ADMIN_TLS_CERT admin-tls demo-tollgate-tls tls.crt
cert-manager TOLLGATE_ADMIN_CLIENT_CACERT admin-client-ca on-call-ca ca.crt
cert-manager GRPC_SERVER_TLS_CERT tls demo-tollgate-tls tls.crt
cert-manager GRPC_SERVER_TLS_KEY tls demo-tollgate-tls tls.key
xds CONFIG_GRPC_XDS_SERVER_TLS_CACERT xds-tls tollgate-xds ca.crt
xds CONFIG_GRPC_XDS_CLIENT_TLS_CERT xds-tls tollgate-xds tls.crt
xds CONFIG_GRPC_XDS_CLIENT_TLS_KEY xds-tls tollgate-xds tls.key";

/// No rendered text is a secret, and each Secret is a file that a variable names.
#[test]
fn secrets_are_files_named_by_variables() {
    for line in SECRETS.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [values, name, volume, secret, key] = words[..] else {
            panic!("{line}");
        };
        let rendered = rendered(&[&format!("--values=helm/tollgate/ci/{values}-values.yaml")]);
        assert!(rendered.all("Secret").is_empty());
        assert_eq!(
            rendered.variable(name),
            &json!(format!("/etc/tollgate/{volume}/{key}"))
        );
        let find = |list: &Value| {
            let list = list.as_array().unwrap().iter();
            let named: Vec<_> = list.filter(|named| named["name"] == volume).collect();
            assert_eq!(named.len(), 1, "{line}");
            named[0].clone()
        };
        let volume_of_pod = find(&rendered.pod()["volumes"]);
        assert_eq!(volume_of_pod["secret"]["secretName"], secret, "{line}");
        let mount = find(&rendered.container()["volumeMounts"]);
        assert_eq!(mount["mountPath"], format!("/etc/tollgate/{volume}"));
        // A subPath mount would never see a renewed certificate.
        assert!(mount["subPath"].is_null(), "{line}");
    }
    let cluster = rendered(&["--values=helm/tollgate/ci/redis-cluster-values.yaml"]);
    let variables = cluster.container()["env"].as_array().unwrap();
    let url = variables
        .iter()
        .find(|variable| variable["name"] == "TOLLGATE_STORE")
        .unwrap();
    assert_eq!(
        url["valueFrom"]["secretKeyRef"],
        json!({ "name": "tollgate-redis", "key": "url" })
    );
}

#[test]
fn the_certificate_has_the_names_of_all_services() {
    let rendered = rendered(&["--values=helm/tollgate/ci/cert-manager-values.yaml"]);
    let certificate = &rendered.only("Certificate")["spec"];
    let names = certificate["dnsNames"].as_array().unwrap();
    for service in rendered.all("Service") {
        let name = service["metadata"]["name"].as_str().unwrap();
        for suffix in ["", ".prod", ".prod.svc", ".prod.svc.cluster.local"] {
            assert!(
                names.contains(&json!(format!("{name}{suffix}"))),
                "{name}{suffix}"
            );
        }
    }
    assert!(names.contains(&json!("limits.example.com")));
    assert_eq!(certificate["secretName"], "demo-tollgate-tls");
    assert_eq!(certificate["issuerRef"]["kind"], "ClusterIssuer");
}
