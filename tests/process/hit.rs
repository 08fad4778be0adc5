//! The deadline of `tollgate hit` and `explain --addr`; `sessions/hit.txt` has the rest.
//!
//! What it deliberately does not do: TLS (`tests/gateway/hit.rs`).

use std::net::TcpListener;

use crate::process::commands::{RULES, tollgate};
use crate::process::logs::serve;
use crate::process::running::Running;

#[test]
fn a_deadline_of_the_client_is_not_reported_as_an_answer() {
    // A port that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    let rules = file.path().to_str().unwrap();
    for command in [
        &["hit", &address, "shop", "ten=a"][..],
        &["explain", rules, "shop", "ten=a", "--addr", &address],
    ] {
        let (code, _, stderr) = tollgate(&[command, &["--timeout", "2s"]].concat());
        assert_eq!(code, 4, "{stderr}");
        assert_eq!(
            stderr,
            format!(
                "error: no answer from {address} within 2s, the deadline of this client (--timeout); \
                 the service has not refused\n"
            )
        );
    }
}

#[test]
fn a_service_without_rules_says_where_the_reason_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("grpc.sock");
    let socket = socket.to_str().unwrap();
    let mut command = serve(&folder.path().join("rules.yaml"), &[("GRPC_UDS", socket)]);
    let serving = Running::with_stderr(&mut command);
    serving.line_with("rules refused; the service listens");
    let (code, _, stderr) = tollgate(&["hit", &format!("unix:{socket}"), "shop", "ten=a"]);
    assert_eq!(code, 4, "{stderr}");
    assert_eq!(
        stderr,
        "error: the service answered Unavailable: no rate limit configuration loaded\n  \
         its log says why, and so does /readyz?verbose on its admin port\n"
    );
}
