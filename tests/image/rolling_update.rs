//! Two pods of the chart's Deployment behind a real Envoy, both replaced under load, without a
//! failed request.
//!
//! How: Envoy resolves the headless Service (STRICT_DNS). The test acts as name server, kubelet and
//! Deployment controller: it starts a new pod, waits until it is ready, adds its address, removes
//! an old pod's address once the new one has been ready for minReadySeconds, and then ends the old
//! pod. Like the controller (maxSurge 1, maxUnavailable 0) it does not wait for that before the
//! next replacement.
//!
//! What it deliberately does not do: wait for Envoy to see a change. A cluster does not either.

use std::thread;

use crate::image::isolation::alone;
use crate::image::name_server::Names;
use crate::image::pod::{Pod, Rendered};
use tollgate_test_support::background_clients::{
    statuses, wait_for_decisions, with_background_load,
};
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::polling::until;

const BOOTSTRAP: &str = include_str!("envoy.yaml");

const HEADLESS: &str = "demo-tollgate-headless.prod.svc.cluster.local";

/// Each pod admits a few requests of each client, so that both answers occur.
const RULES: &str = r#"--set-json=rules={"edge.yaml":{"domain":"edge","descriptors":[{"key":"day","rate_limit":{"unit":"year","requests_per_unit":20}}]}}"#;

/// Decisions before the first pod is replaced, and after the last.
const DECISIONS: u64 = 600;

#[test]
fn a_rolling_update_under_load_costs_no_request() {
    alone(|_| {
        let rendered = Rendered::new(&[RULES, "--set=replicaCount=2"]);
        let start = |name: &str| rendered.start(name).ready();
        let old = ["old-1", "old-2"].map(start);
        let names = Names::of(HEADLESS);
        names.are(&[&old[0], &old[1]]);
        let backend = std::path::Path::new("/run/backend.sock");
        let envoy = Envoy::start(
            &BOOTSTRAP
                .replace("@BACKEND@", backend.to_str().unwrap())
                .replace("@NAMES@", &names.address.port().to_string())
                .replace("@NAME@", HEADLESS),
        );
        let mut new: Vec<Pod> = Vec::new();
        let answers = with_background_load(&envoy, "/day", || {
            wait_for_decisions(&envoy, DECISIONS);
            wait_for_requests(&old);
            thread::scope(|scope| {
                let mut left: Vec<_> = old.iter().collect();
                for leaving in &old {
                    new.push(start(&format!("new-{}", new.len())));
                    let ready: Vec<_> = left.iter().copied().chain(&new).collect();
                    names.are(&ready);
                    // sleep: that of the controller.
                    thread::sleep(rendered.min_ready());
                    left.retain(|pod| pod.address != leaving.address);
                    let ready: Vec<_> = left.iter().copied().chain(&new).collect();
                    names.are(&ready);
                    scope.spawn(|| leaving.end());
                }
            });
            wait_for_decisions(&envoy, DECISIONS);
            wait_for_requests(&new);
        });
        assert_eq!(envoy.counts().error, 0);
        assert_eq!(envoy.counts().failure_mode_allowed, 0);
        assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
        let answered: usize = answers.values().sum();
        println!("two pods were replaced under load: {answered} requests answered, none in error");
    });
}

/// Waits until each pod has received requests: Envoy calls all.
fn wait_for_requests(pods: &[Pod]) {
    for pod in pods {
        let requests = r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#;
        until("the pod has received requests", || {
            match pod.metric(requests) {
                0..=50 => Err(pod.said()),
                _ => Ok(()),
            }
        });
    }
}
