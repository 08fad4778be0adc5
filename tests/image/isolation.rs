//! An isolated environment for containers: its own network, mounts, processes and storage, all
//! removed with it.
//!
//! Why: podman creates bridges, firewall rules, mounts and files in half a dozen places, and a
//! failed test must leave none of them. How: the test runs itself again in new namespaces
//! (`unshare`), in which everything that podman writes to is in memory. When that process ends, the
//! kernel ends its children and frees the rest. Inside, the pods have addresses of their own that
//! the test can reach.
//!
//! What it deliberately does not do: run without root. It reports that instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use tollgate_test_support::components::program;
use tollgate_test_support::namespaces::{run_test_again, test_name};

use crate::image::binary;

/// Set inside, to the folder of the image's files.
const WITHIN: &str = "TOLLGATE_IMAGE_WITHIN";

/// Timestamp of every file and of the image, so that two builds are equal.
pub(crate) const TIMESTAMP: &str = "1700000000";

/// File that lists the pods.
pub(crate) const PODS: &str = "/run/pods";

/// Name of the image inside.
pub(crate) const IMAGE: &str = "localhost/tollgate:test";

/// One test at a time: they share the machine's control groups, and some measure.
static ALONE: Mutex<()> = Mutex::new(());

/// Mounts memory where podman writes, and then becomes an init process (containers leave children
/// behind) with the test as its child.
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

/// The environment, with the image built in it.
pub(crate) struct Machine {
    /// Files of the image.
    pub(crate) files: PathBuf,
}

/// Runs a test in an environment of its own. Must be called by the test itself; takes the name of
/// the test from the closure's type.
pub(crate) fn alone<F: FnOnce(&Machine)>(test: F) {
    if let Some(context) = std::env::var_os(WITHIN) {
        test(&Machine::new(Path::new(&context)));
        return;
    }
    // A failure of another test does not matter here.
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for needed in ["podman", "runc", "catatonit"] {
        program(needed);
    }
    let name = test_name::<F>();
    let context = binary::context();
    let status = run_test_again(name, SETUP, |command| {
        command
            .env(WITHIN, context)
            .env("CONTAINERS_CONF", "/run/containers.conf")
            .env("CONTAINERS_STORAGE_CONF", "/run/storage.conf")
            .env("TMPDIR", "/run")
    });
    for group in ["libpod_parent/conmon", "libpod_parent"] {
        forget_group(group);
    }
    assert!(status.success(), "{name} failed");
}

/// Removes an empty control group of any version and controller. Groups are not part of a
/// namespace, and podman leaves those of its pods behind.
pub(crate) fn forget_group(group: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(root).into_iter().flatten();
    let controllers = controllers.map(|controller| controller.expect("a folder").path());
    for controller in controllers.chain([root.to_owned()]) {
        // It may not exist, or be in use by another podman.
        let _ = fs::remove_dir(controller.join(group));
    }
}

/// Output of a program, which must succeed.
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

/// Output of podman, which must succeed.
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
        // Ends the pods before the kernel does, to free their control groups. The test may have
        // failed because podman is missing.
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
