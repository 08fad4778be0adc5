//! A test that runs again in namespaces of its own: network, mounts, processes and IPC.
//!
//! Why: some tests change bridges, mounts or installed packages, and a failed test must leave none
//! of that behind. When the process that runs again ends, the kernel ends its children and frees
//! the rest.
//!
//! What it deliberately does not do: run without root. It reports that instead.

use std::any::type_name;
use std::process::{Command, ExitStatus, Stdio};

use crate::components::program;

const NAMESPACES: [&str; 5] = ["--net", "--mount", "--pid", "--ipc", "--fork"];

/// The name of the test that passes a closure of this type on, in the test binary.
pub fn test_name<F>() -> &'static str {
    let (_, name) = type_name::<F>().split_once("::").expect("a path");
    name.strip_suffix("::{{closure}}").expect("a closure")
}

/// Runs the test of that name again in new namespaces. `setup` is a shell script that ends with
/// `exec … "$0" "$@"`; `configure` adds variables.
pub fn run_test_again(
    name: &str,
    setup: &str,
    configure: impl FnOnce(&mut Command) -> &mut Command,
) -> ExitStatus {
    let can = Command::new(program("unshare"))
        .args(NAMESPACES)
        .args(["--mount-proc", "true"])
        .output();
    let can = can.expect("unshare runs");
    assert!(
        can.status.success(),
        "these tests need namespaces of their own: run them as root, on a kernel that allows it; unshare says: {}",
        String::from_utf8_lossy(&can.stderr)
    );
    let mut command = Command::new("unshare");
    command
        .args(NAMESPACES)
        .args(["--mount-proc", "--kill-child", "sh", "-ec", setup])
        .arg(std::env::current_exe().expect("this test binary"))
        .args(["--exact", name, "--nocapture"])
        .stdin(Stdio::null());
    configure(&mut command).status().expect("unshare runs")
}
