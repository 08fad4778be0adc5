//! The packages of these tests: one around the binary that cargo built, and a newer one.
//!
//! What it deliberately does not do: install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tollgate_test_support::components::{component, repository, without_cargo_variables};
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::debian::machine::run;

/// A line that only the newer package's example rules have.
pub(crate) const NEWER_LINE: &str = "# Of the newer package.\n";

/// Both packages.
pub(crate) struct Packages {
    pub(crate) folder: PathBuf,
    pub(crate) current: PathBuf,
    pub(crate) newer: PathBuf,
}

// === impl Packages ===

impl Packages {
    /// The packages that another process built in this folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self::find(folder).unwrap_or_else(|| panic!("no packages in {}", folder.display()))
    }

    fn find(folder: &Path) -> Option<Self> {
        Some(Self {
            folder: folder.to_owned(),
            current: find(folder, env!("CARGO_PKG_VERSION"))?,
            newer: find(folder, NEWER_VERSION)?,
        })
    }

    /// Builds both, unless an earlier test has, of this process or another.
    pub(crate) fn built() -> Self {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        let folder = FOLDER.get_or_init(|| {
            let folder = folder("packages");
            if !Self::find(&folder).is_some_and(|packages| packages.is_fresh()) {
                build("packages");
                let current = find(&folder, env!("CARGO_PKG_VERSION")).expect("a package");
                make_newer(&folder, &current);
            }
            folder
        });
        Self::in_folder(folder)
    }

    /// Whether they are newer than these tests and their binary. The newer one is built last.
    fn is_fresh(&self) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let this = std::env::current_exe().expect("this test binary");
        let sources = [this.as_path(), Path::new(tollgate_binary())].map(changed);
        sources
            .into_iter()
            .all(|source| source < changed(&self.newer))
    }
}

/// The package of that version in a folder.
fn find(folder: &Path, version: &str) -> Option<PathBuf> {
    let begin = format!("tollgate_{version}-1_");
    fs::read_dir(folder).ok()?.find_map(|file| {
        let path = file.expect("a file").path();
        let name = path.file_name()?.to_str()?;
        name.starts_with(&begin).then_some(path)
    })
}

/// Where packages of that name are built.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("debian")
        .join(name)
}

/// The version of the newer package.
pub(crate) const NEWER_VERSION: &str = "99.0.0";

/// Packages the binary that cargo built for this test.
pub(crate) fn build(name: &str) -> PathBuf {
    static CLI_DOCS: OnceLock<()> = OnceLock::new();
    CLI_DOCS.get_or_init(|| {
        let mut make = Command::new("make");
        let make = make.arg("docs-cli").current_dir(repository());
        run(without_cargo_variables(make));
    });
    let folder = folder(name);
    // Left behind by an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    run(Command::new(repository().join("packaging/debian/build.sh"))
        .arg(component("cargo-deb/bin/cargo-deb"))
        .arg(tollgate_binary())
        .arg(&folder));
    folder
}

/// The same package with a higher version and other example rules.
fn make_newer(folder: &Path, current: &Path) {
    let root = folder.join("newer");
    run(Command::new("dpkg-deb").arg("-R").arg(current).arg(&root));
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control).expect("the control file");
    let version = format!("Version: {}-1", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    let text = text.replace(&version, &format!("Version: {NEWER_VERSION}-1"));
    fs::write(control, text).expect("the control file");
    let rules = root.join("etc/tollgate/rules/example.yaml");
    let text = fs::read_to_string(&rules).expect("the rules");
    fs::write(rules, NEWER_LINE.to_owned() + text.as_str()).expect("the rules");
    run(Command::new("dpkg-deb")
        .args(["-Zgzip", "-z1", "--root-owner-group", "-b"])
        .arg(&root)
        .arg(folder));
    fs::remove_dir_all(root).expect("removed");
}
