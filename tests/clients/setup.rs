//! A service and a client program for one scenario.
//!
//! What it deliberately does not do: check results (`scenarios`).

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::proto::PUBLISHED_DESCRIPTORS;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::library::Library;
use crate::program::{Outcome, Program};

/// `open` answers OK with its limit, `closed` answers OVER_LIMIT (`contract.md`).
const RULES: &str = "
domain: clients
descriptors:
- key: open
  rate_limit: { unit: year, requests_per_unit: 1000000000 }
- key: closed
  rate_limit: { unit: year, requests_per_unit: 0 }
";

/// One scenario with one library.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) library: &'static Library,
    pub(crate) scenario: &'static str,
}

/// A client program that runs for a case.
pub(crate) struct Client {
    case: Case,
    program: Program,
}

static PRINT_BATCHES: AtomicBool = AtomicBool::new(false);

/// Whether each batch is printed with its number of calls.
pub(crate) fn print_batches(print: bool) {
    PRINT_BATCHES.store(print, Ordering::Relaxed);
}

/// A service with these further arguments.
pub(crate) fn service(arguments: &[&str]) -> Tollgate {
    Tollgate::start(RULES, arguments)
}

/// Number of requests that it has decided.
pub(crate) fn decided(service: &Tollgate) -> u64 {
    service.metric("tollgate_decisions_total{code=\"over_limit\"}")
}

/// Number of gRPC connections that it has accepted.
pub(crate) fn accepted(service: &Tollgate) -> u64 {
    service.metric("tollgate_connections_accepted_total{port=\"grpc\"}")
}

/// The file with the descriptors of `proto/`, written once a run.
fn descriptors() -> PathBuf {
    static FILE: OnceLock<tempfile::TempPath> = OnceLock::new();
    FILE.get_or_init(|| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(PUBLISHED_DESCRIPTORS)
            .expect("the descriptors");
        file.into_temp_path()
    })
    .to_path_buf()
}

// === impl Case ===

impl Case {
    /// Starts the client for this address with these further arguments.
    pub(crate) fn client(self, address: SocketAddr, arguments: &[(&str, String)]) -> Client {
        let mut all = vec![
            ("address", address.to_string()),
            ("descriptors", descriptors().display().to_string()),
        ];
        all.extend_from_slice(arguments);
        Client {
            case: self,
            program: Program::start(self.library.command(&all)),
        }
    }
}

// === impl Client ===

impl Client {
    /// Starts a batch, or sends `stop` or `cancel`.
    pub(crate) fn send(&mut self, command: &str) {
        self.program.send(command);
    }

    /// Waits for the result of a batch.
    pub(crate) fn result(&mut self, name: &str) -> Outcome {
        let outcome = self.program.result(name);
        if PRINT_BATCHES.load(Ordering::Relaxed) {
            println!(
                "{}::{}: {outcome}",
                self.case.library.name, self.case.scenario
            );
        }
        outcome
    }

    /// Runs a batch to its end.
    pub(crate) fn run(&mut self, name: &str, batch: &str) -> Outcome {
        self.send(&format!("name={name} {batch}"));
        self.result(name)
    }

    /// One small call, so that the connection is there.
    pub(crate) fn connect(&mut self) {
        self.run("first", "calls=1 at-once=1 deadline-ms=20000")
            .all_answered(1);
    }
}
