//! Pods of the chart's Deployment, rendered by real helm and run by `podman play kube`, one at a
//! time.
//!
//! How: only the pod's name changes, as a ReplicaSet would change it, and for tests that update
//! rules the volume's source: podman writes a ConfigMap as plain files, Kubernetes through links.
//! podman cannot run probes in an image without a shell, so the chart renders none and the tests
//! probe like kubelet.
//!
//! What it deliberately does not do: schedule, or restart pods.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::metrics_text::series_value;
use tollgate_test_support::polling::until;
use tollgate_test_support::process_usage::status_field;
use tollgate_test_support::yaml::yaml;

use crate::image::isolation::{IMAGE, PODS, podman, run};

/// Rendered Deployment and ConfigMap.
pub(crate) struct Rendered {
    deployment: Value,
    config_map: Value,
}

/// A running pod.
pub(crate) struct Pod {
    name: String,
    container: String,
    pub(crate) address: IpAddr,
    /// Process ID, outside the container.
    pub(crate) process: u32,
    /// Grace period, and the preStop sleep.
    grace: Duration,
    pre_stop: Duration,
}

// === impl Rendered ===

impl Rendered {
    /// Renders the chart with further arguments of helm.
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let (repository, tag) = IMAGE.split_once(':').expect("a tag");
        let text = run(Command::new(component("helm/4.3.1/helm"))
            .args(["template", "demo", "helm/tollgate", "--namespace", "prod"])
            .args(["--show-only=templates/deployment.yaml"])
            .args(["--show-only=templates/configmap.yaml"])
            .arg(format!(
                "--set=image.repository={repository},image.tag={tag},image.pullPolicy=Never"
            ))
            .arg("--set=startupProbe=null,livenessProbe=null,readinessProbe=null")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR")));
        let documents = yaml(&text);
        let only = |kind: &str| {
            let of_kind = documents.iter().find(|document| document["kind"] == kind);
            of_kind.expect(kind).clone()
        };
        Self {
            deployment: only("Deployment"),
            config_map: only("ConfigMap"),
        }
    }

    /// The same with its rules in a folder instead of the ConfigMap.
    pub(crate) fn with_rules_in(mut self, folder: &Path) -> Self {
        let volumes = self.deployment["spec"]["template"]["spec"]["volumes"]
            .as_array_mut()
            .expect("volumes");
        let rules = volumes
            .iter_mut()
            .find(|volume| volume["configMap"].is_object());
        let rules = rules.expect("rules from a ConfigMap");
        let name = rules["name"].clone();
        *rules = json!({"name": name, "hostPath": {"path": folder, "type": "Directory"}});
        self
    }

    /// The same with its snapshot in a folder instead of the volume of a claim.
    pub(crate) fn with_snapshot_in(mut self, folder: &Path) -> Self {
        let volumes = self.deployment["spec"]["template"]["spec"]["volumes"]
            .as_array_mut()
            .expect("volumes");
        let claimed = volumes
            .iter_mut()
            .find(|volume| volume["persistentVolumeClaim"].is_object());
        let claimed = claimed.expect("a claim");
        let name = claimed["name"].clone();
        *claimed = json!({"name": name, "hostPath": {"path": folder, "type": "Directory"}});
        self
    }

    /// How the Deployment replaces pods.
    pub(crate) fn strategy(&self) -> &Value {
        &self.deployment["spec"]["strategy"]["type"]
    }

    /// The group that a volume is given.
    pub(crate) fn volume_group(&self) -> u32 {
        let group = self.spec()["securityContext"]["fsGroup"].as_u64();
        u32::try_from(group.expect("fsGroup")).expect("a group ID")
    }

    /// The rules files, by name.
    pub(crate) fn rules(&self) -> &Value {
        &self.config_map["data"]
    }

    /// minReadySeconds: how long a new pod must be ready before an old one ends.
    pub(crate) fn min_ready(&self) -> Duration {
        seconds(&self.deployment["spec"]["minReadySeconds"])
    }

    /// Memory limit of the container, in bytes.
    pub(crate) fn memory_limit(&self) -> u64 {
        let limit = &self.spec()["containers"][0]["resources"]["limits"]["memory"];
        let text = limit.as_str().expect("a limit");
        let mebibytes = text.strip_suffix("Mi").expect("in mebibytes");
        mebibytes.parse::<u64>().expect("a number") << 20
    }

    fn spec(&self) -> &Value {
        &self.deployment["spec"]["template"]["spec"]
    }

    /// Starts a pod with a new name.
    pub(crate) fn start(&self, name: &str) -> Pod {
        let mut deployment = self.deployment.clone();
        deployment["metadata"]["name"] = json!(name);
        deployment["spec"]["replicas"] = json!(1);
        // podman would bind them on the host, where each exists once.
        for container in deployment["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .expect("containers")
        {
            container
                .as_object_mut()
                .expect("a container")
                .remove("ports");
        }
        let file = PathBuf::from(format!("/run/{name}.yaml"));
        // JSON is valid YAML.
        let text = format!("{}\n---\n{deployment}\n", self.config_map);
        fs::write(&file, text).expect("the manifest");
        podman(&["play", "kube", file.to_str().expect("a path")]);
        let mut pods = fs::File::options().append(true).create(true).open(PODS);
        let pods = pods.as_mut().expect("a file");
        let format = "--format={{.ID}}";
        let id = podman(&["pod", "inspect", format, &format!("{name}-pod-0")]);
        writeln!(pods, "{}", id.trim()).expect("a line");
        let containers = self.spec()["containers"].as_array().expect("containers");
        let container = containers[0]["name"].as_str().expect("a name");
        let container = format!("{name}-pod-0-{container}");
        let inspected = |format: &str| podman(&["inspect", "--format", format, &container]);
        let address = inspected("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
        Pod {
            name: format!("{name}-pod-0"),
            address: address.trim().parse().expect("an address"),
            process: inspected("{{.State.Pid}}")
                .trim()
                .parse()
                .expect("a number"),
            grace: seconds(&self.spec()["terminationGracePeriodSeconds"]),
            pre_stop: seconds(&containers[0]["lifecycle"]["preStop"]["sleep"]["seconds"]),
            container,
        }
    }
}

// === impl Pod ===

impl Pod {
    pub(crate) fn grpc(&self) -> SocketAddr {
        (self.address, 8081).into()
    }

    /// Whether the readiness probe succeeds.
    pub(crate) fn is_ready(&self) -> bool {
        let http_port = SocketAddr::from((self.address, 8080));
        // The port may not be open yet, or closed already.
        TcpStream::connect(http_port).is_ok() && http(http_port, "GET", "/readyz", "").0 == 200
    }

    /// What kubelet's liveness probe asks.
    pub(crate) fn is_alive(&self) -> bool {
        http((self.address, 8080).into(), "GET", "/livez", "").0 == 200
    }

    /// Waits until it is ready.
    pub(crate) fn ready(self) -> Self {
        until(&format!("{} is ready", self.name), || {
            if self.is_ready() {
                Ok(())
            } else {
                Err(self.said())
            }
        });
        self
    }

    /// A metric by its name and labels; 0 when it is not there.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let (_, text) = http((self.address, 8080).into(), "GET", "/metrics", "");
        series_value(&text, series)
    }

    /// Log of the pod.
    pub(crate) fn said(&self) -> String {
        let output = Command::new("podman")
            .args(["logs", &self.container])
            .output()
            .expect("podman runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + text(&output.stderr).as_str()
    }

    /// A field of `/proc/…/status`.
    pub(crate) fn status(&self, field: &str) -> String {
        status_field(self.process, field)
    }

    /// A path inside the container's root, from outside.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.process)).join(file.trim_start_matches('/'))
    }

    /// Ends the pod like kubelet: preStop sleep, SIGTERM, and SIGKILL after the grace period.
    /// The pod must have ended by itself, with success.
    pub(crate) fn end(&self) {
        // sleep: that of kubelet.
        std::thread::sleep(self.pre_stop);
        let left = self.grace.saturating_sub(self.pre_stop);
        podman(&[
            "stop",
            &format!("--time={}", left.as_secs()),
            &self.container,
        ]);
        // 137 after SIGKILL.
        let code = podman(&[
            "inspect",
            "--format",
            "{{.State.ExitCode}}",
            &self.container,
        ]);
        assert_eq!(code.trim(), "0", "{}", self.said());
        podman(&["pod", "rm", "--force", "--time=0", &self.name]);
    }
}

/// Seconds; none if the field is missing.
fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_default())
}
