//! Runs the commands of the README and the other pages.

use std::path::PathBuf;
use std::process::Command;

use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};
use tollgate_test_support::wire_bench_options;

use crate::process::testing_rules::of_a_year;

fn readme() -> String {
    std::fs::read_to_string("README.md").unwrap()
}

/// Lines of every fenced `sh` block of a page, without comments.
fn commands(text: &str) -> Vec<String> {
    let blocks = text
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Runs the commands of a page against a service with the example rules and returns their output.
/// Ports are replaced, so that tests can run in parallel.
fn run(text: &str) -> String {
    let rules = std::fs::read_to_string("examples/edge.yaml").unwrap();
    let mut running = Tollgate::start(&of_a_year(&rules), &[]);
    let mut printed = String::new();
    for command in commands(text) {
        // `cargo run --release --` is replaced by the binary under test.
        let tollgate = command
            .strip_prefix("cargo run --release -- ")
            .or_else(|| command.strip_prefix("target/release/tollgate "))
            .or_else(|| command.strip_prefix("tollgate "));
        let curl = command.strip_prefix("curl -s ");
        match (tollgate, curl, command.as_str()) {
            // This service runs already, with the same rules.
            (Some("serve examples/edge.yaml"), ..) => assert!(running.running()),
            (Some(serve), ..) if serve.starts_with("serve rules.yaml ") => starts(&rules, serve),
            (Some(arguments), ..) => {
                let arguments = arguments
                    .replace("127.0.0.1:8081", &running.grpc.to_string())
                    .replace("127.0.0.1:6070", &running.admin.to_string());
                let output = Command::new(tollgate_binary())
                    .args(arguments.split(' '))
                    .output()
                    .unwrap();
                let code = output.status.code().unwrap();
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(code == 0 || code == 3, "{command}: {said}");
                printed += &said;
            }
            (None, Some(arguments), _) => {
                let (options, url) = arguments.rsplit_once(' ').unwrap_or(("", arguments));
                let (host, path) = url.split_once('/').unwrap();
                let address = match host {
                    "127.0.0.1:8080" => running.http,
                    "127.0.0.1:6070" => running.admin,
                    _ => panic!("no test knows {host}"),
                };
                let (method, body) = match options {
                    "" => ("GET", ""),
                    "-X PUT -d info" => ("PUT", "info"),
                    _ => panic!("no test knows {options}"),
                };
                let (status, body) = http(address, method, &format!("/{path}"), body);
                assert_eq!(status, 200, "{command}: {body}");
                printed += &body;
            }
            (None, None, made) if made.starts_with("make ") => can_be_made(made),
            // `tests/image` runs these.
            (None, None, podman) if podman.starts_with("podman ") => {}
            (None, None, "cargo install --locked --path .") => the_package_installs_tollgate(),
            (None, None, helm) if helm.starts_with("helm install ") => renders(helm),
            (
                None,
                None,
                "target/venv/bin/envoy -c examples/envoy.yaml" | "curl -i 127.0.0.1:10000/",
            ) => {
                // `tests/envoy` runs this bootstrap.
                let bootstrap = std::fs::read_to_string("examples/envoy.yaml").unwrap();
                assert!(bootstrap.contains("port_value: 10000"));
            }
            _ => panic!("no test runs `{command}`"),
        }
    }
    printed
}

/// Starts a service with the settings of a command, and its logs in a temporary directory.
fn starts(rules: &str, serve: &str) {
    let logs = tempfile::tempdir().unwrap();
    let serve = serve.replace("/var/log/tollgate", logs.path().to_str().unwrap());
    let settings: Vec<&str> = serve.split(' ').skip(2).collect();
    assert!(Tollgate::start(rules, &settings).running());
}

/// Checks that the package of this folder has the binary. The tests have built it already.
fn the_package_installs_tollgate() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let root = std::fs::canonicalize("Cargo.toml").unwrap();
    let package = packages
        .iter()
        .find(|package| package["manifest_path"] == root.to_str().unwrap())
        .unwrap();
    let targets = package["targets"].as_array().unwrap();
    let is_binary =
        |target: &serde_json::Value| target["kind"][0] == "bin" && target["name"] == "tollgate";
    assert!(targets.iter().any(is_binary), "{targets:?}");
}

/// Renders the chart as `helm install` with these arguments does. No cluster is needed for that.
fn renders(command: &str) {
    let arguments = command.strip_prefix("helm install ").unwrap();
    let output = Command::new(component("helm/4.3.1/helm"))
        .arg("template")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

/// Checks that a make target exists and takes the options. It is not run here: `make test` is part
/// of CI, and benches are run by hand.
fn can_be_made(command: &str) {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let (target, options) = match command.split_once(" BENCH=") {
        Some((target, options)) => (target, options.trim_matches('"')),
        None => (command, ""),
    };
    let target = target.strip_prefix("make ").unwrap();
    let (_, recipe) = makefile
        .split_once(&format!("\n{target}:"))
        .unwrap_or_else(|| panic!("the Makefile has no `{target}`"));
    let recipe = recipe.split("\n\n").next().unwrap();
    assert!(
        options.is_empty() || recipe.contains("$(BENCH)"),
        "{command}"
    );
    let options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    let read = wire_bench_options::Options::read(&options);
    assert!(read.is_ok(), "{command}: {read:?}");
}

/// Every line of the repository's Rust files that declares a function or a module, and the names of
/// their folders.
fn declarations() -> String {
    let mut folders: Vec<PathBuf> = ["src", "crates", "tests"].map(PathBuf::from).into();
    let mut declared = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                declared.extend([path.to_str().unwrap(), "\n"]);
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let lines = text.lines().map(str::trim);
                let lines = lines.filter(|line| line.contains("fn ") || line.starts_with("mod "));
                lines.for_each(|line| declared.extend([line, "\n"]));
            }
        }
    }
    declared
}

/// An alternative of a filter that matches no test fails nothing, and `make readme` would then not
/// write its page.
#[test]
fn every_test_filter_in_the_makefile_matches_a_test() {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let declared = declarations();
    let mut names = 0;
    for filter in makefile.split("test(/").skip(1) {
        let filter = filter.split("/)").next().unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for name in filter
            .split(|c| !is_name(c))
            .filter(|name| !name.is_empty())
        {
            assert!(declared.contains(name), "{filter}: no test {name}");
            names += 1;
        }
    }
    assert!(names >= 10, "{names}");
}

#[test]
fn the_performance_page_names_every_bench_option() {
    let page = std::fs::read_to_string("docs/performance.md").unwrap();
    for (option, _) in wire_bench_options::OPTIONS {
        assert!(page.contains(&format!("`{option}")), "{option}");
    }
}

#[test]
fn every_readme_command_runs_and_the_quick_start_ends_over_limit() {
    let page = readme();
    let printed = run(&page);
    assert!(printed.contains("OVER LIMIT"), "{printed}");
    // The README has the two commands that matter, and is short enough to be read.
    let commands = commands(&page);
    for command in [
        "cargo run --release -- serve examples/edge.yaml",
        "make test",
    ] {
        assert!(commands.iter().any(|line| line == command), "{command}");
    }
    let lines = page.lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

/// `make test-memory` measures it for the page; the README repeats it.
#[test]
fn the_readme_has_the_measured_memory_of_a_key() {
    let page = std::fs::read_to_string("docs/operating.md").unwrap();
    let (_, row) = page.split_once("\n| 10,000,000 | ").unwrap();
    let measured = row.split(" |").next().unwrap();
    assert!(
        readme().contains(&format!("[{measured}](docs/operating.md")),
        "{measured}"
    );
}

#[test]
fn the_explain_output_in_the_rules_page_is_the_real_one() {
    let page = std::fs::read_to_string("docs/rules.md").unwrap();
    let (_, shown) = page.split_once("```text\ndomain edge").unwrap();
    let shown = shown.split("```").next().unwrap();
    let printed = run(&page);
    assert!(printed.contains(shown), "{printed}");
}

#[test]
fn the_envoy_filter_in_the_readme_is_the_one_of_the_bootstrap() {
    // `tests/envoy` runs this bootstrap.
    let bootstrap = std::fs::read_to_string("examples/envoy.yaml").unwrap();
    let bootstrap: Vec<_> = bootstrap.lines().map(str::trim).collect();
    let page = readme();
    let (_, snippet) = page
        .split_once("```yaml\n- name: envoy.filters.http.ratelimit\n")
        .unwrap();
    let snippet: Vec<_> = snippet.split("```").next().unwrap().lines().collect();
    assert!(snippet.len() < 10, "{snippet:?}");
    for line in snippet {
        assert!(bootstrap.contains(&line.trim()), "{line}");
    }
}

#[test]
fn every_command_of_the_other_pages_runs() {
    for page in std::fs::read_dir("docs").unwrap() {
        let path = page.unwrap().path();
        // Tests of these pages run theirs: process::admin, process::tenants and guides::replay.
        let elsewhere = ["admin.md", "replay.md", "tenants.md"];
        let is_here = !elsewhere.iter().any(|page| path.ends_with(page));
        if is_here && path.extension().is_some_and(|extension| extension == "md") {
            run(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_grammar_shown_is_valid() {
    let page = std::fs::read_to_string("docs/rules.md").unwrap();
    for text in [&page, &readme()] {
        let yaml = text
            .split("```yaml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        // Placeholders are valid values, except that a flag needs a pattern.
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), yaml).unwrap();
        let output = Command::new(tollgate_binary())
            .arg("check")
            .arg(file.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
