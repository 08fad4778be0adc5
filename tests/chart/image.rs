//! The Dockerfile against the chart that runs the image and the package that is built in it.
//!
//! What it deliberately does not do: build it. `tests/image` does.

use std::process::Command;

use crate::chart::rendering::{read, rendered, root};

/// Instructions of the Dockerfile as keyword and rest, with continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", "");
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (keyword, rest) = line.split_once(' ').unwrap();
            (keyword.to_owned(), rest.trim().to_owned())
        })
        .collect()
}

/// The only instruction of a kind in the last stage.
fn last(keyword: &str) -> String {
    let all = instructions();
    let stage = all.iter().rposition(|(keyword, _)| keyword == "FROM");
    let mut found = all[stage.unwrap()..]
        .iter()
        .filter(|(key, _)| key == keyword);
    let (_, rest) = found.next().expect(keyword);
    assert!(found.next().is_none(), "{keyword} occurs twice");
    rest.clone()
}

/// The build script, with the values of its text constants where it prints them.
fn build_script() -> String {
    let mut script = read("build.rs");
    for line in read("build.rs").lines() {
        let constant = line.strip_prefix("const ");
        if let Some((name, value)) = constant.and_then(|rest| rest.split_once(": &str = \"")) {
            script = script.replace(&format!("{{{name}}}"), value.trim_end_matches("\";"));
        }
    }
    script
}

#[test]
fn the_image_matches_the_charts_expectations() {
    let rendered = rendered(&[]);
    let security = &rendered.pod()["securityContext"];
    let (user, group) = (&security["runAsUser"], &security["runAsGroup"]);
    assert_eq!(last("USER"), format!("{user}:{group}"));

    let ports = rendered.container()["ports"].as_array().unwrap().iter();
    let ports: Vec<_> = ports
        .map(|port| port["containerPort"].to_string())
        .collect();
    assert_eq!(last("EXPOSE"), ports.join(" "));

    // The chart sets no command, so its arguments follow the entry point.
    assert!(rendered.container()["command"].is_null());
    assert_eq!(last("ENTRYPOINT"), r#"["/usr/bin/tollgate"]"#);
    let first = rendered.container()["args"][0].as_str().unwrap();
    assert_eq!(last("CMD"), format!("[\"{first}\"]"));
}

#[test]
fn the_last_stage_copies_the_scripts_output_only() {
    assert_eq!(last("FROM"), "scratch");
    assert_eq!(last("COPY"), "--from=build /out/ /");
    let all = instructions();
    let mut runs = all.iter().filter(|(keyword, _)| keyword == "RUN");
    let (_, build) = runs.next().unwrap();
    assert!(build.starts_with("image/build.sh /out "), "{build}");
    assert!(runs.next().is_none());
    // The files that `tests/image` expects are those that the script writes.
    let script = read("image/build.sh");
    assert!(script.contains("-Ctarget-feature=+crt-static"));
    assert!(script.contains("--locked"));
}

#[test]
fn the_build_stage_has_the_packages_rust_and_cargos_inputs() {
    let (_, from) = &instructions()[0];
    // Cross-compiled on the build machine.
    let from = from.strip_prefix("--platform=$BUILDPLATFORM ").unwrap();
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("rust-version = \"").unwrap();
    let version = rest.split('"').next().unwrap();
    assert!(from.starts_with(&format!("rust:{version}-slim-")), "{from}");

    let directory = tempfile::tempdir().unwrap();
    let allowed = read(".dockerignore");
    let copied = instructions();
    let copied = copied
        .iter()
        .filter(|(keyword, rest)| keyword == "COPY" && !rest.starts_with("--from"));
    for (_, rest) in copied {
        let (sources, _) = rest.rsplit_once(' ').unwrap();
        for source in sources.split(' ') {
            let line = format!("!{source}");
            assert!(
                allowed.lines().any(|allow| allow == line),
                ".dockerignore: {line}"
            );
            let there = directory.path().join(source);
            std::fs::create_dir_all(there.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(root().join(source), there).unwrap();
        }
    }
    // The manifest does not list the build script's inputs, but the script prints them.
    for read in build_script().split("rerun-if-changed=").skip(1) {
        let read = read.split('"').next().unwrap();
        // Files of .git, where it is present.
        if read == "{}" {
            continue;
        }
        assert!(directory.path().join(read).exists(), "COPY {read}");
    }
    // Fetching needs every target of the manifest, and fetches nothing here.
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let cargo = Command::new(env!("CARGO"))
        .args(["fetch", "--locked", "--offline", "--target", host.unwrap()])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&cargo.stderr);
    assert!(cargo.status.success(), "{said}");
}

/// Cargo rejects a manifest whose targets are missing, even if they are not built.
#[test]
fn the_build_stage_has_every_file_that_the_package_names() {
    let manifest = read("Cargo.toml");
    let paths = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \""))
        .map(|rest| rest.trim_end_matches('"'));
    let tests: Vec<_> = paths.filter(|path| path.starts_with("tests/")).collect();
    assert!(tests.len() >= 4, "{tests:?}");
    let copied = instructions();
    for path in tests {
        let copy = ("COPY".to_owned(), format!("{path} {path}"));
        assert!(
            copied.contains(&copy),
            "the Dockerfile does not copy {path}"
        );
        let sent = read(".dockerignore")
            .lines()
            .any(|line| line == format!("!{path}"));
        assert!(sent, ".dockerignore keeps {path} back");
    }
}
