//! Rendered pods with the image: confined as the chart says, with every user ID; rules are
//! reloaded; shutdown is in time.
//!
//! What it deliberately does not do: try every value of the chart. `tests/chart` does.

use std::fs;
use std::io::ErrorKind;

use crate::image::isolation::alone;
use crate::image::pod::{Pod, Rendered};
use crate::image::volume::Volume;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;

/// User IDs of the image, of Envoy Gateway's rate limit service, and of an OpenShift range.
const USERS: [[u32; 2]; 3] = [[65532, 65532], [65534, 65534], [1_000_650_000, 0]];

/// Rules with a limit per year.
fn rules(requests: u32) -> String {
    let limit = format!(r#"{{"unit":"year","requests_per_unit":{requests}}}"#);
    let descriptors = format!(r#"[{{"key":"k","rate_limit":{limit}}}]"#);
    format!(r#"--set-json=rules={{"a.yaml":{{"domain":"a","descriptors":{descriptors}}}}}"#)
}

/// Sends `times` checks over one gRPC connection; returns the answers.
fn ask(pod: &Pod, times: usize) -> Vec<Code> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = Service::connect(pod.grpc()).await;
        let mut codes = Vec::new();
        for _ in 0..times {
            let asked = request("a", vec![descriptor(&[("k", "v")])]);
            let answer = client.should_rate_limit(asked).await.unwrap();
            codes.push(answer.into_inner().overall_code());
        }
        codes
    })
}

#[test]
fn a_rendered_pod_is_confined_serves_and_ends_within_its_grace_period() {
    alone(|_| {
        for [user, group] in USERS {
            let who = format!(
                "--set=podSecurityContext.runAsUser={user},podSecurityContext.runAsGroup={group}"
            );
            let rendered = Rendered::new(&[&rules(2), &who]);
            let pod = rendered.start(&format!("user-{user}")).ready();
            assert_eq!(ask(&pod, 3), [Code::Ok, Code::Ok, Code::OverLimit]);

            for (field, id) in [("Uid", user), ("Gid", group)] {
                assert_eq!(pod.status(field), vec![id.to_string(); 4].join(" "));
            }
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(pod.status(set), "0000000000000000", "{set}");
            }
            assert_eq!(pod.status("NoNewPrivs"), "1");
            // Mode 2 is a seccomp filter.
            assert_eq!(pod.status("Seccomp"), "2");
            // This runs as root, so only the mount can prevent it.
            for file in ["/written", "/etc/tollgate/rules/written"] {
                let refused = fs::write(pod.path(file), "").unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{file}");
            }
            let memory = pod.metric("tollgate_memory_max_bytes");
            assert_eq!(memory, rendered.memory_limit() / 2);
            if user == USERS[0][0] {
                pod.end();
            }
        }
    });
}

#[test]
fn rules_updated_by_kubelet_are_applied() {
    alone(|_| {
        let mut volume = Volume::new("rules");
        let rendered = |requests| Rendered::new(&[&rules(requests)]);
        volume.write(rendered(1_000).rules());
        let pod = rendered(1_000).with_rules_in(&volume.folder);
        let pod = pod.start("reloading").ready();
        assert_eq!(ask(&pod, 3), [Code::Ok; 3]);
        volume.write(rendered(5).rules());
        let generation = || pod.metric("tollgate_rules_generation");
        let before = generation();
        until("the rules are loaded", || {
            if generation() > before {
                Ok(())
            } else {
                Err(pod.said())
            }
        });
        // Consumed hits stay consumed.
        let ok = Code::Ok;
        assert_eq!(ask(&pod, 3), [ok, ok, Code::OverLimit]);
        // Invalid rules change nothing.
        volume.write(&serde_json::json!({"a.yaml": "domain: ["}));
        until("the rules are refused", || {
            pod.metric("ratelimit_service_config_load_error") > 0
        });
        assert_eq!(ask(&pod, 1), [Code::OverLimit]);
    });
}

#[test]
fn a_terminating_pod_is_unready_and_answers_until_its_drain_ends() {
    alone(|_| {
        // Longer than a busy machine needs for the checks below.
        let drain = "--set=drainDelaySeconds=15";
        let pod = Rendered::new(&[&rules(1_000), drain])
            .start("draining")
            .ready();
        std::thread::scope(|scope| {
            scope.spawn(|| pod.end());
            until("it is unready", || !pod.is_ready());
            // A pod that is not alive would be killed in the middle of its drain.
            assert!(pod.is_alive(), "{}", pod.said());
            assert_eq!(ask(&pod, 3), [Code::Ok; 3], "{}", pod.said());
        });
    });
}
