//! Install commands of guides: real helm renders them with the values of the page.
//!
//! What it deliberately does not do: inspect the rendered objects (`tests/chart`), except for names
//! that guides use.

use std::process::Command;

use tollgate_test_support::components::component;

use crate::guides::guide::{Page, names, root, yaml};

/// Helm versions that the chart supports.
const HELMS: [&str; 2] = ["3.19.0", "4.3.1"];

#[test]
fn every_install_command_renders_with_the_values_above_it() {
    let mut commands = 0;
    for name in names() {
        let guide = Page::guide(&name);
        let mut values = String::new();
        for block in guide.blocks() {
            if block.text.starts_with("# values.yaml\n") {
                values.clone_from(&block.text);
            }
            for line in block
                .text
                .lines()
                .filter(|line| line.starts_with("helm install "))
            {
                commands += 1;
                rendered(&name, line, &values);
            }
        }
    }
    assert!(commands >= 3, "{commands}");
}

fn rendered(guide: &str, command: &str, values: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let command = command.replace("values.yaml", file.to_str().unwrap());
    for version in HELMS {
        let output = Command::new(component(&format!("helm/{version}/helm")))
            .arg("template")
            .args(command.split(' ').skip(2))
            .env_clear()
            .env("HOME", env!("CARGO_TARGET_TMPDIR"))
            .current_dir(root())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{guide}: {said}");
        // Service names that guides use.
        let objects = yaml(&String::from_utf8(output.stdout).unwrap());
        for service in ["tollgate", "tollgate-headless"] {
            let there = objects
                .iter()
                .any(|object| object["kind"] == "Service" && object["metadata"]["name"] == service);
            assert!(there, "{guide}: no Service {service}");
        }
    }
}
