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

use crate::rendering::{HELMS, helm, read, yaml};

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

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
    kept.map(|sign| if sign == ' ' { '-' } else { sign })
        .collect()
}

#[test]
fn every_link_in_a_packaged_readme_resolves() {
    let package = Package::by(HELMS[1]);
    let text = package.text("README.md");
    let anchors: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor)
        .collect();
    let followed = |link: &str| match link.split_once('#') {
        Some(("", name)) => anchors.iter().any(|known| known == name),
        _ if link.starts_with("https://") => true,
        _ => {
            let path = link.split('#').next().expect("a path");
            !path.starts_with("..") && package.path(path).exists()
        }
    };
    let broken: Vec<_> = links(&text)
        .into_iter()
        .filter(|link| !followed(link))
        .collect();
    assert_eq!(broken, [""; 0]);
    assert!(!followed("../../README.md") && !followed("#nowhere") && followed("LICENSE"));
}

#[test]
fn the_chart_has_the_fields_of_catalogues() {
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
    assert_eq!(
        encoded,
        base64(read("helm/tollgate/files/icon.svg").as_bytes())
    );

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

/// Base64 as coreutils writes it, without line breaks.
fn base64(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("the bytes");
    let output = Command::new("base64")
        .arg("--wrap=0")
        .arg(file.path())
        .output();
    String::from_utf8(output.expect("base64 runs").stdout).expect("a text")
}
