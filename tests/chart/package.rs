//! The packaged chart: its files, its fields for catalogues, and its README's links.
//!
//! Why: a package is used without the repository. A licence or a link that is not packaged is
//! missing there.
//!
//! What it deliberately does not do: publish it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::chart::rendering::{HELMS, helm, python, read, yaml};

/// An unpacked package; its folder is removed when dropped.
struct Package {
    directory: TempDir,
    files: BTreeSet<String>,
}

impl Package {
    fn by(version: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let to = directory.path().display().to_string();
        helm(version, &["package", "helm/tollgate", "--destination", &to]).expect("a package");
        let name = concat!("tollgate-", env!("CARGO_PKG_VERSION"), ".tgz");
        let list = Command::new("tar")
            .args(["--extract", "--gzip", "--verbose", "--file", name])
            .current_dir(directory.path())
            .output()
            .expect("tar runs");
        assert!(list.status.success(), "tar unpacks {name}");
        let list = String::from_utf8(list.stdout).expect("names");
        Self {
            directory,
            files: list.lines().map(str::to_owned).collect(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("tollgate").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect(name)
    }
}

#[test]
fn a_package_has_the_licence_and_no_test_files() {
    for version in HELMS {
        let package = Package::by(version);
        assert_eq!(
            package.text("LICENSE"),
            read("LICENSE"),
            "copy LICENSE to the chart"
        );
        for name in ["README.md", "values.schema.json", "templates/NOTES.txt"] {
            assert!(
                package.files.contains(&format!("tollgate/{name}")),
                "{name}"
            );
        }
        let left_out = |name: &&String| name.starts_with("tollgate/ci/");
        assert_eq!(package.files.iter().find(left_out), None, "helm {version}");
        // It renders without the repository around it.
        let chart = package.path("").display().to_string();
        let text = helm(version, &["template", "demo", &chart]).expect("it renders");
        assert!(text.contains("kind: Deployment"));
    }
}

/// Targets of the links of a Markdown text.
fn links(text: &str) -> Vec<&str> {
    let rests = text.split("](").skip(1);
    rests
        .map(|rest| rest.split(')').next().expect("an end"))
        .collect()
}

/// A package has nothing of the repository around the chart. `tests/prose.rs` checks headings.
#[test]
fn no_link_of_a_packaged_readme_leaves_the_package() {
    let package = Package::by(HELMS[1]);
    let text = package.text("README.md");
    for link in links(&text) {
        let path = link.split('#').next().expect("a path");
        let there = !path.starts_with("..") && package.path(path).exists();
        assert!(there || link.starts_with("https://"), "{link}");
    }
}

#[test]
fn the_chart_has_the_fields_of_catalogues() {
    const ENCODE: &str = "import base64, json, sys; \
        json.dump(base64.b64encode(sys.stdin.buffer.read()).decode(), sys.stdout)";
    let metadata: Value = yaml(&Package::by(HELMS[1]).text("Chart.yaml")).remove(0);
    let texts = |list: &Value| {
        let list = list.as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("a text").to_owned())
            .collect::<Vec<_>>()
    };
    let home = metadata["home"].as_str().expect("home");
    let sources = texts(&metadata["sources"]);
    for address in sources.iter().map(String::as_str).chain([home]) {
        assert!(address.starts_with("https://"), "{address}");
    }
    assert!(!sources.is_empty());
    let maintainers = metadata["maintainers"].as_array().expect("maintainers");
    assert!(maintainers.iter().all(|one| one["name"].is_string()) && !maintainers.is_empty());

    // The icon is a data URL, so the package needs no server for it.
    let icon = metadata["icon"].as_str().expect("icon");
    let encoded = icon
        .strip_prefix("data:image/svg+xml;base64,")
        .expect("an SVG");
    let icon = read("helm/tollgate/files/icon.svg");
    assert_eq!(encoded, python(&["-c", ENCODE], &icon));

    let annotations = metadata["annotations"].as_object().expect("annotations");
    let annotation = |name: &str| annotations[&format!("artifacthub.io/{name}")].as_str();
    assert_eq!(annotation("category"), Some("networking"));
    assert_eq!(annotation("license"), Some("Apache-2.0"));
    assert!(read("Cargo.toml").contains("license = \"Apache-2.0\""));
    let changes = yaml(annotation("changes").expect("changes")).remove(0);
    for change in changes.as_array().expect("a list") {
        let kinds = [
            "added",
            "changed",
            "deprecated",
            "removed",
            "fixed",
            "security",
        ];
        assert!(kinds.contains(&change["kind"].as_str().expect("a kind")));
        assert!(change["description"].is_string());
    }
}
