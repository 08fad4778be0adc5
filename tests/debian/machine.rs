//! A machine for a package: an overlay over this machine's root folder, in namespaces of its own.
//! Everything that a test writes there is in memory and ends with it.
//!
//! What it deliberately does not do: run an init system.

use std::process::Command;
use std::sync::Mutex;

use tollgate_test_support::components::repository;
use tollgate_test_support::namespaces::{run_test_again, test_name};

use crate::debian::package::Packages;

/// Set inside, to the folder of the packages.
const WITHIN: &str = "TOLLGATE_DEBIAN_WITHIN";

/// One test at a time: `dpkg` and the memory of the overlays are shared.
static ALONE: Mutex<()> = Mutex::new(());

/// Builds the root folder and starts the test in it. The repository may be on another file system.
const SETUP: &str = r#"
ip link set lo up
mount -t tmpfs tollgate /run
mkdir /run/upper /run/work /run/root
mount -t overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work tollgate /run/root
cd /run/root
mount --bind "$REPOSITORY" ".$REPOSITORY"
for folder in proc sys dev; do mount --rbind "/$folder" "$folder"; done
for folder in run tmp; do mount -t tmpfs tollgate "$folder"; done
exec chroot . "$0" "$@"
"#;

/// Runs a test on a machine of its own. Must be called by the test itself.
pub(crate) fn alone<F: FnOnce(&Packages)>(test: F) {
    if let Some(folder) = std::env::var_os(WITHIN) {
        test(&Packages::in_folder(folder.as_ref()));
        return;
    }
    // A failure of another test does not matter here.
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let packages = Packages::built();
    let name = test_name::<F>();
    let status = run_test_again(name, SETUP, |command| {
        command
            .env(WITHIN, &packages.folder)
            .env("REPOSITORY", repository())
            .env("TMPDIR", "/tmp")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    });
    assert!(status.success(), "{name} failed");
}

/// Output of a program, which must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let (code, text) = run_to_code(command);
    assert_eq!(code, 0, "{command:?}: {text}");
    text
}

/// Exit code of a program, and its output.
pub(crate) fn run_to_code(command: &mut Command) -> (i32, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let text = text(&output.stdout) + text(&output.stderr).as_str();
    (output.status.code().expect("an exit code"), text)
}
