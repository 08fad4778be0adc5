//! Six gRPC client libraries against the real service: grpc-go, grpc-java on netty and on okhttp,
//! grpc-js, C-core and tonic.
//!
//! How: every scenario runs with every client, as a test of its own named `CLIENT::SCENARIO`. A
//! client is a small program in its own language (`contract.md`) that `make deps` builds below
//! `target/clients`. A client whose toolchain is missing is reported and shown as ignored; where
//! the variable CI is set, its tests fail. `--nocapture` prints the calls of each batch.
//!
//! What it deliberately does not do: test what limits decide (`tests/service`), or send what no
//! library sends (`tests/h2spec`, `tests/hostile`).
// A failed test panics.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod library;
mod program;
mod scenarios;
mod setup;
mod tonic_client;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use library::LIBRARIES;
use scenarios::SCENARIOS;

fn main() -> ExitCode {
    if let Some(code) = tonic_client::run_if_asked() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Most scenarios wait for another process, and some of them only for time.
    arguments.test_threads.get_or_insert(6);
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    let mut trials = Vec::new();
    // The longest first: a keepalive of grpc-go and grpc-java takes ten seconds.
    for (scenario, run) in SCENARIOS {
        for library in LIBRARIES {
            let name = format!("{}::{scenario}", library.name);
            let trial = match library.missing() {
                None => Trial::test(name, move || {
                    run(setup::Case { library, scenario });
                    Ok(())
                }),
                Some(why) => Trial::test(name, move || Err(why.into())).with_ignored_flag(!ci),
            };
            trials.push(trial);
        }
    }
    for library in LIBRARIES {
        if let Some(why) = library.missing() {
            eprintln!("left out: {}: {why}", library.name);
        }
    }
    setup::print_batches(arguments.nocapture);
    libtest_mimic::run(&arguments, trials).exit_code()
}
