//! A pod of the chart's Deployment with `snapshot.enabled`, replaced as by the strategy Recreate:
//! the old one ends, the new one starts on the same volume, and exactly the limit is admitted by
//! both.
//!
//! How: the volume of the claim is a folder that belongs to root, and to the group of the pod's
//! `fsGroup` with the rights that kubelet gives it. podman has no claims and ignores `fsGroup`.
//!
//! What it deliberately does not do: crash. `tests/process/snapshot.rs` does.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::{Service, limit_of};

use crate::image::isolation::alone;
use crate::image::pod::{Pod, Rendered};

/// Of each limit; the window of a year does not turn within the test.
const LIMIT: usize = 100;

fn rules() -> String {
    let descriptors = ALGORITHMS.iter().map(|algorithm| {
        // window: none is left that turns during the test.
        let limit = limit_of(100, *algorithm).replace("unit: hour", "unit: year");
        format!("  - {{key: {}, rate_limit: {limit}}}\n", algorithm.name())
    });
    let text = format!(
        "domain: a\ndescriptors:\n{}",
        descriptors.collect::<String>()
    );
    format!("--set-json=rules={}", serde_json::json!({"a.yaml": text}))
}

/// How many of `times` checks of each limit the pod admits.
fn admitted(pod: &Pod, times: usize) -> Vec<usize> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = Service::connect(pod.grpc()).await;
        let mut admitted = Vec::new();
        for algorithm in ALGORITHMS {
            let mut passed = 0;
            for _ in 0..times {
                let asked = request("a", vec![descriptor(&[(algorithm.name(), "v")])]);
                let answer = client.should_rate_limit(asked).await.unwrap();
                passed += usize::from(answer.into_inner().overall_code() == Code::Ok);
            }
            admitted.push(passed);
        }
        admitted
    })
}

/// A volume as kubelet hands it to a pod with this `fsGroup`.
fn volume(group: u32) -> &'static Path {
    let folder = Path::new("/run/volume");
    fs::create_dir(folder).unwrap();
    chown(folder, Some(0), Some(group)).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o2770)).unwrap();
    folder
}

#[test]
fn a_pod_replaced_by_recreate_admits_exactly_the_limit() {
    alone(|_| {
        let rendered = Rendered::new(&["--set=snapshot.enabled=true", &rules()]);
        assert_eq!(rendered.strategy(), "Recreate");
        let volume = volume(rendered.volume_group());
        let rendered = rendered.with_snapshot_in(volume);

        let old = rendered.start("old").ready();
        assert_eq!(admitted(&old, 60), [60; ALGORITHMS.len()]);
        old.end();
        let snapshot = fs::metadata(volume.join("buckets.snapshot")).unwrap();
        assert_eq!(snapshot.mode() & 0o777, 0o600);
        assert_ne!(snapshot.uid(), 0);

        let new = rendered.start("new").ready();
        let loaded = "tollgate_snapshot_loaded_buckets_total{result=\"loaded\"}";
        assert_eq!(
            new.metric(loaded),
            ALGORITHMS.len() as u64,
            "{}",
            new.said()
        );
        assert_eq!(admitted(&new, LIMIT), [LIMIT - 60; ALGORITHMS.len()]);
        println!("a pod was replaced by Recreate: 60 and 40 of 100 passed in each algorithm");
    });
}
