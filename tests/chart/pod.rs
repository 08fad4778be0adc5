//! A rendered pod as a process, with its arguments, its variables, and its rules mounted like a
//! ConfigMap.
//!
//! How: only mount paths and addresses are replaced, the addresses by flags, which override
//! variables, and the ports of listeners that the values turn on by 0. So the binary must accept
//! everything else that the chart renders.
//!
//! What it deliberately does not do: run a container. `objects` checks user, root and limits.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::chart::rendering::Rendered;

/// A running pod, killed when dropped.
pub(crate) struct Pod {
    child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Its first line of output, with the addresses.
    pub(crate) said: String,
    _rules: TempDir,
    _secrets: Secrets,
}

/// Writes files like Kubernetes writes a ConfigMap: each is a link through `..data` into a folder,
/// and `..data` is replaced last, by a rename.
fn write(directory: &Path, folder: &str, files: &Value) {
    let written = directory.join(folder);
    std::fs::create_dir(&written).expect("a folder");
    for (name, text) in files.as_object().expect("files") {
        std::fs::write(written.join(name), text.as_str().expect("a text")).expect("a rules file");
        let link = directory.join(name);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(name), link).expect("a link");
        }
    }
    symlink(folder, directory.join("..data_tmp")).expect("a link");
    std::fs::rename(directory.join("..data_tmp"), directory.join("..data")).expect("a rename");
}

fn mounted(rendered: &Rendered) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = &rendered.rules().expect("rules")["data"];
    write(directory.path(), "..2026_01_02_03_04_05.678901234", files);
    directory
}

/// `tollgate check` on the rules of a rendered ConfigMap.
pub(crate) fn check(rendered: &Rendered) -> Output {
    let rules = mounted(rendered);
    Command::new(tollgate_binary())
        .arg("check")
        .arg(rules.path())
        .env_clear()
        .output()
        .expect("tollgate runs")
}

/// Folders that replace Secrets, by the Secrets' names.
pub(crate) type Folders<'f> = &'f [(&'f str, &'f Path)];

/// A text of a container, with the folders of its Secrets in place of their mount paths. Only
/// mounted keys are there.
pub(crate) fn found(pod: &Value, text: &str, folders: Folders<'_>) -> String {
    let none = Vec::new();
    let volumes = pod["volumes"].as_array().unwrap_or(&none);
    let mounts = pod["containers"][0]["volumeMounts"].as_array();
    for mount in mounts.unwrap_or(&none) {
        let path = mount["mountPath"].as_str().expect("a path");
        let Some((before, key)) = text.split_once(&format!("{path}/")) else {
            continue;
        };
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == mount["name"]);
        let secret = &volume.expect("its volume")["secret"];
        let folder = folders
            .iter()
            .find(|(name, _)| secret["secretName"] == *name);
        let (_, folder) = folder.unwrap_or_else(|| panic!("no folder for {secret}"));
        if let Some(items) = secret["items"].as_array() {
            let mounted = items
                .iter()
                .any(|item| item["key"] == key && item["path"] == key);
            assert!(mounted, "{key} is not among {items:?}");
        }
        return format!("{before}{}", folder.join(key).display());
    }
    text.to_owned()
}

/// A folder in place of a mounted Secret, with every file that is named.
struct Secrets(TempDir);

impl Secrets {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// Value of a variable, with the file it names in the folder.
    fn found(&self, value: &str) -> String {
        let Some(name) = value.strip_prefix("/run/secrets/store/") else {
            return value.to_owned();
        };
        let file = self.0.path().join(name);
        std::fs::write(&file, "0123456789abcdef0123456789abcdef").expect("a file");
        file.display().to_string()
    }
}

// === impl Pod ===

impl Pod {
    pub(crate) fn start(rendered: &Rendered) -> Self {
        // The Secret of ci/everything-on-values.yaml. It is read at the start.
        let notify = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(notify.path().join("hmac"), "0123456789abcdef").expect("a file");
        Self::start_with(rendered, &[("edge-notify", notify.path())])
    }

    /// Starts a pod with these Secrets.
    pub(crate) fn start_with(rendered: &Rendered, folders: Folders<'_>) -> Self {
        let container = rendered.container();
        let rules = mounted(rendered);
        let path = &container["volumeMounts"][0]["mountPath"];
        let arguments = container["args"].as_array().expect("arguments").iter();
        let arguments = arguments.map(|argument| {
            if argument == path {
                rules.path().display().to_string()
            } else {
                argument.as_str().expect("a text").to_owned()
            }
        });
        let secrets = Secrets::new();
        let variables = container["env"].as_array().expect("variables").iter();
        let variables = variables.filter_map(|variable| {
            let (name, value) = (variable["name"].as_str()?, variable["value"].as_str()?);
            // Two pods may run at a time, so each takes ports that are free.
            if let "TOLLGATE_AUTH_PORT" | "TOLLGATE_RESP_PORT" | "TOLLGATE_SPOE_PORT" = name {
                return Some((name, "0".to_owned()));
            }
            Some((name, found(rendered.pod(), &secrets.found(value), folders)))
        });
        let mut child = Command::new(tollgate_binary())
            .args(arguments)
            .args(["--grpc-host=127.0.0.1", "--grpc-port=0"])
            .args(["--host=127.0.0.1", "--port=0"])
            .args(["--debug-host=127.0.0.1", "--debug-port=0"])
            .env_clear()
            .envs(variables)
            .stderr(Stdio::piped())
            .spawn_tied()
            .expect("tollgate starts");
        let lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        // With unreadable rules the pod waits for valid ones; the test must not wait with it.
        let (say, heard) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Keeps reading, so that the pod never blocks on a full pipe.
                let _ = say.send(line);
            }
        });
        let mut said = String::new();
        while !said.contains("try: ") {
            if let Ok(line) = heard.recv_timeout(PATIENCE) {
                said.extend([line.as_str(), "\n"]);
            } else {
                let _ = child.kill();
                let _ = child.wait();
                panic!("tollgate did not start: {said}");
            }
        }
        // Warnings before this line may name gRPC and HTTP as well.
        let (_, banner) = said.split_once(" listens: ").expect("the addresses");
        let address = |name: &str| {
            let (_, rest) = banner.split_once(name).expect(name);
            let end = rest.find(',').expect("an end");
            rest[..end].parse().expect("an address")
        };
        Self {
            grpc: address("gRPC "),
            http: address("HTTP "),
            admin: address("admin "),
            child,
            said,
            _rules: rules,
            _secrets: secrets,
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
