//! Instruction gate: the cost of a check, in instructions, matches
//! `benches/instructions/baseline.txt`.
//!
//! Why instructions: a binary executes the same number whatever else the machine does, so the
//! tolerance can be small without false alarms. How: the bench runs under callgrind and prints
//! figures, `baseline` compares them. Too few fails as well: an unrecorded gain could be lost
//! unnoticed. `make baseline` records it.
//!
//! What it deliberately does not do: measure time, or the cost of HTTP/2 and the kernel (`make
//! bench`).

mod baseline;

use std::collections::BTreeMap;
use std::process::Command;

use tollgate_test_support::components::{component, program};
use tollgate_test_support::instruction_checks::CHECKS;

use baseline::{Baseline, Compiler};

const FILE: &str = "benches/instructions/baseline.txt";

/// Counts the instructions per check of every scenario.
fn count_instructions() -> BTreeMap<String, u64> {
    program("valgrind");
    let output = Command::new("cargo")
        .args(["bench", "--locked", "--bench", "instructions"])
        .args(["--profile", "counted"])
        .args(["--", "--output-format=json"])
        .env("GUNGRAUN_RUNNER", component("tools/bin/gungraun-runner"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let scenarios = printed.lines().map(|line| {
        let summary: serde_json::Value = serde_json::from_str(line).expect("a summary a line");
        let name = summary["id"].as_str().expect("its name").to_owned();
        let metrics = &summary["profiles"][0]["data"]["parts"][0]["metrics"];
        let all = metrics["Ir"]["values"]["new"].as_u64();
        let all = all.unwrap_or_else(|| panic!("no instructions in {line}"));
        (name, all / u64::from(CHECKS))
    });
    scenarios.collect()
}

#[test]
fn the_hot_path_matches_the_baseline() {
    let now = Baseline {
        compiler: Compiler::present(),
        scenarios: count_instructions(),
    };
    if std::env::var_os("WRITE_BASELINE").is_some() {
        std::fs::write(FILE, now.to_string()).unwrap();
        return;
    }
    // A scenario's request is a reservation or its end, in turn.
    let (step, check) = (
        now.scenarios["reserve_and_commit"],
        now.scenarios["fixed_window"],
    );
    assert!(
        2 * step <= 3 * check,
        "a reservation and its end cost {} instructions, and a check {check}",
        2 * step
    );
    let kept = Baseline::read(&std::fs::read_to_string(FILE).unwrap());
    let wrong = kept.judge(&now);
    assert!(
        wrong.is_empty(),
        "{}\nIf that is as it should be, run `make baseline` and say why in the change.",
        wrong.join("\n")
    );
}
