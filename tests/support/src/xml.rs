//! XML, parsed by Python.

use std::path::PathBuf;
use std::process::Command;

use crate::components::component;

/// Parses files as XML.
pub fn assert_well_formed(paths: &[PathBuf]) {
    let parse = "import sys, xml.dom.minidom as dom\nfor path in sys.argv[1:]: dom.parse(path)";
    let output = Command::new(component("venv/bin/python"))
        .args(["-c", parse])
        .args(paths)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
