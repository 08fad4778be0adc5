//! A Kubernetes API server with its controllers, on loopback, stopped when dropped.
//!
//! Why: schemas do not cover what an API server does with a chart (defaults, field managers,
//! garbage collection).
//!
//! What it deliberately does not do: run pods. Without a kubelet, pods stay pending and have no
//! log.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;

/// The API server's token. It listens on loopback during a test.
const TOKEN: &str = "administrator";

/// Interval of the autoscaler, in seconds. Kubernetes' default is 15.
const AUTOSCALER_SECONDS: u64 = 1;

pub(crate) struct Cluster {
    /// Processes in the order in which they are stopped.
    processes: Vec<(&'static str, Child)>,
    directory: TempDir,
}

/// Lines that a process prints, until dropped.
pub(crate) struct Lines {
    child: Child,
    seen: Arc<Mutex<Vec<String>>>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output of a command, or its error.
fn said(output: &Output) -> Result<String, String> {
    let all = text(&output.stdout) + text(&output.stderr).as_str();
    if output.status.success() {
        Ok(all)
    } else {
        Err(all)
    }
}

// === impl Cluster ===

impl Cluster {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = Self {
            processes: Vec::new(),
            directory,
        };
        let [client, peer, secure] = [reserved_port(), reserved_port(), reserved_port()];
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        cluster.spawn(
            "etcd",
            &[
                format!("--data-dir={}", cluster.path("etcd").display()),
                format!("--listen-client-urls={}", at(client)),
                format!("--advertise-client-urls={}", at(client)),
                format!("--listen-peer-urls={}", at(peer)),
                format!("--initial-advertise-peer-urls={}", at(peer)),
                format!("--initial-cluster=default={}", at(peer)),
                "--unsafe-no-fsync".to_owned(),
            ],
        );
        let key = cluster.path("accounts.key");
        let pair = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(&key, pair.serialize_pem()).expect("a file");
        let public = cluster.path("accounts.pub");
        std::fs::write(&public, pair.public_key_pem()).expect("a file");
        let tokens = cluster.path("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},admin,1,system:masters\n")).expect("a file");
        let key = key.display();
        cluster.spawn(
            "kube-apiserver",
            &[
                format!("--etcd-servers={}", at(client)),
                format!("--cert-dir={}", cluster.path("certificates").display()),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                format!("--secure-port={secure}"),
                "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112".to_owned(),
                "--service-account-issuer=https://tollgate.example".to_owned(),
                format!("--service-account-key-file={}", public.display()),
                format!("--service-account-signing-key-file={key}"),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".to_owned(),
            ],
        );
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "here", "cluster": {
                "server": format!("https://127.0.0.1:{secure}"),
                "certificate-authority": cluster.path("certificates/apiserver.crt"),
            }}],
            "users": [{ "name": "admin", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "here", "context": { "cluster": "here", "user": "admin" } }],
            "current-context": "here",
        });
        std::fs::write(cluster.config(), config.to_string()).expect("a file");
        // A new API server creates the default namespace last.
        cluster.await_success(&["get", "--raw=/readyz"]);
        cluster.await_success(&["get", "namespace", "default"]);
        cluster.spawn(
            "kube-controller-manager",
            &[
                format!("--kubeconfig={}", cluster.config().display()),
                format!("--service-account-private-key-file={key}"),
                "--controllers=*,-node-ipam-controller".to_owned(),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                format!("--horizontal-pod-autoscaler-sync-period={AUTOSCALER_SECONDS}s"),
            ],
        );
        cluster.await_success(&["get", "serviceaccount", "default"]);
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("config")
    }

    fn spawn(&mut self, name: &'static str, arguments: &[String]) {
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let child = Command::new(component(&format!("kubernetes/{name}")))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(log)
            .spawn_tied();
        // A process is stopped before those it depends on.
        self.processes.insert(0, (name, child.expect(name)));
    }

    /// A command configured for this cluster only.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(component(program));
        command
            .env_clear()
            .env("HOME", self.directory.path())
            .env("KUBECONFIG", self.config())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        command
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command("kubernetes/kubectl");
        said(&command.args(arguments).output().expect("kubectl runs"))
    }

    /// Output of kubectl with these arguments and an object on stdin.
    pub(crate) fn apply(&self, object: &str, arguments: &[&str]) -> Result<String, String> {
        let file = self.path("object.yaml");
        std::fs::write(&file, object).expect("a file");
        let file = format!("--filename={}", file.display());
        self.kubectl(&[&["apply", "--server-side", &file], arguments].concat())
    }

    /// One field of an object; none if it is empty or the object does not exist.
    pub(crate) fn field(&self, namespace: &str, object: &str, path: &str) -> Option<String> {
        let output = format!("--output=jsonpath={{{path}}}");
        let found = self.kubectl(&["--namespace", namespace, "get", object, &output]);
        found.ok().filter(|value| !value.is_empty())
    }

    pub(crate) fn exists(&self, namespace: &str, object: &str) -> bool {
        match self.kubectl(&["--namespace", namespace, "get", object]) {
            Ok(_) => true,
            Err(said) => {
                assert!(said.contains("(NotFound)"), "{object}: {said}");
                false
            }
        }
    }

    pub(crate) fn helm(
        &self,
        version: &str,
        namespace: &str,
        arguments: &[&str],
    ) -> Result<String, String> {
        let mut command = self.command(&format!("helm/{version}/helm"));
        command.args(arguments).args(["--namespace", namespace]);
        said(&command.output().expect("helm runs"))
    }

    /// Output of kubectl line by line, after the first line.
    pub(crate) fn watch(&self, arguments: &[&str]) -> Lines {
        let mut command = self.command("kubernetes/kubectl");
        let child = command.args(arguments).stdout(Stdio::piped()).spawn_tied();
        let mut child = child.expect("kubectl runs");
        let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                written.lock().expect("the lines").push(line);
            }
        });
        let watch = Lines { child, seen };
        until(&format!("{arguments:?} prints something"), || {
            !watch.seen().is_empty()
        });
        watch
    }

    fn await_success(&mut self, arguments: &[&str]) {
        until(&format!("{arguments:?} succeeds"), || {
            for (name, process) in &mut self.processes {
                let ended = process.try_wait().expect("its status");
                let log = self.directory.path().join(format!("{name}.log"));
                let log = std::fs::read_to_string(log).expect("its log");
                let last: Vec<_> = log.lines().rev().take(3).collect();
                assert!(ended.is_none(), "{name} ended: {last:#?}");
            }
            self.kubectl(arguments)
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

// === impl Lines ===

impl Lines {
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("the lines").clone()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
