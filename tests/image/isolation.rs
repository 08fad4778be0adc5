//! A machine of a test's own, as far as containers can tell: its own network, mounts, processes and storage, gone with it.
//!
//! Why: podman makes bridges, firewall rules, mounts and files in half a dozen places, and a test that fails must leave none of
//! them behind. How: the test runs itself again, alone, by `unshare`, in namespaces where all that podman writes to lies in
//! memory. When that process ends, whatever way, the kernel ends its children and takes back the rest. Within it the pods have
//! addresses of their own and the test talks to them as a neighbour.
//!
//! What it deliberately does not do: run without root. It says so.

use std::any::type_name;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use tollgate_test_support::components::program;

use crate::binary;

/// Set within, to the folder that the image's files are taken from.
const WITHIN: &str = "TOLLGATE_IMAGE_WITHIN";

/// Of every file and of the image itself, so that two builds do not differ by when they were made.
pub(crate) const TIMESTAMP: &str = "1700000000";

/// Where it is written which pods there were.
pub(crate) const PODS: &str = "/run/pods";

/// The image's name within.
pub(crate) const IMAGE: &str = "localhost/tollgate:test";

/// One at a time: they share the machine's control groups, and some measure.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes what podman writes to lie in memory, and then becomes an init process (containers leave children behind) with the test
/// as its child.
const SETUP: &str = r#"
for folder in /run /dev/shm /var/tmp /var/lib/containers /var/lib/cni /etc/cni; do
  mkdir -p "$folder"
  mount -t tmpfs tollgate "$folder"
done
cat > /run/storage.conf <<END
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
END
cat > /run/containers.conf <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
END
ip link set lo up
exec catatonit -- "$0" "$@"
"#;

/// The machine, with the image built on it.
pub(crate) struct Machine {
    /// What the image is made of.
    pub(crate) files: PathBuf,
}

/// Runs a test on a machine of its own. It must be called by the test itself, whose name it takes from the closure's.
pub(crate) fn alone<F: FnOnce(&Machine)>(test: F) {
    if let Some(context) = std::env::var_os(WITHIN) {
        test(&Machine::new(Path::new(&context)));
        return;
    }
    // Another test's failure is not ours.
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for needed in ["unshare", "podman", "runc", "catatonit"] {
        program(needed);
    }
    let (_, name) = type_name::<F>().split_once("::").expect("a path");
    let name = name.strip_suffix("::{{closure}}").expect("a closure");
    let context = binary::context();
    let namespaces = ["--net", "--mount", "--pid", "--ipc", "--fork"];
    let can = Command::new("unshare")
        .args(namespaces)
        .args(["--mount-proc", "true"])
        .output();
    let can = can.expect("unshare runs");
    assert!(
        can.status.success(),
        "these tests run containers in namespaces of their own, which takes root and a kernel that allows it; unshare says: {}",
        String::from_utf8_lossy(&can.stderr)
    );
    let status = Command::new("unshare")
        .args(namespaces)
        .args(["--mount-proc", "--kill-child", "sh", "-ec", SETUP])
        .arg(std::env::current_exe().expect("this test binary"))
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, context)
        .env("CONTAINERS_CONF", "/run/containers.conf")
        .env("CONTAINERS_STORAGE_CONF", "/run/storage.conf")
        .env("TMPDIR", "/run")
        .stdin(Stdio::null())
        .status();
    for group in ["libpod_parent/conmon", "libpod_parent"] {
        forget_group(group);
    }
    assert!(status.expect("unshare runs").success(), "{name} failed");
}

/// Removes a control group that nobody is in, of whichever version and controller. Groups are no namespace's, and podman leaves those
/// of its pods behind.
pub(crate) fn forget_group(group: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(root).into_iter().flatten();
    let controllers = controllers.map(|controller| controller.expect("a folder").path());
    for controller in controllers.chain([root.to_owned()]) {
        // It need not be there, and another's podman may be at work in it.
        let _ = fs::remove_dir(controller.join(group));
    }
}

/// What a program prints; it must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// What podman prints; it must succeed.
pub(crate) fn podman(arguments: &[&str]) -> String {
    run(Command::new("podman").args(arguments))
}

/// Builds the Dockerfile's last stage around the files in a folder.
pub(crate) fn build(context: &Path, name: &str) {
    run(Command::new("podman")
        .args(["build", "--isolation=chroot", "--timestamp", TIMESTAMP])
        .arg(format!("--build-context=build={}", context.display()))
        .args(["--tag", name, "."])
        .current_dir(env!("CARGO_MANIFEST_DIR")));
}

// === impl Machine ===

impl Machine {
    fn new(context: &Path) -> Self {
        build(context, IMAGE);
        Self {
            files: context.join("out"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Before the kernel does it, for the sake of control groups. A test may have failed for want of podman.
        let _ = Command::new("podman")
            .args(["pod", "rm", "--all", "--force", "--time=0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        for pod in fs::read_to_string(PODS).unwrap_or_default().lines() {
            forget_group(&format!("libpod_parent/{pod}"));
        }
    }
}
