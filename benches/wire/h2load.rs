//! One request, repeated by nghttp2's `h2load`, a well-known generator.
//!
//! What it deliberately does not do: check answers; h2load knows only HTTP's status. The number of
//! decisions is compared with tollgate's own counter (`axes`).

use std::process::Command;
use std::time::Instant;

use bytes::Bytes;
use tollgate_test_support::components::program;

use crate::generator::Shape;
use crate::servers::Server;

/// Sends `requests` requests; returns the seconds it took.
pub(crate) fn run(server: &Server, body: &Bytes, shape: Shape, requests: u64) -> f64 {
    let file = tempfile::NamedTempFile::new().expect("a file for the body");
    std::fs::write(file.path(), body).expect("the body");
    #[allow(clippy::disallowed_methods)] // a bench measures time
    let began = Instant::now();
    let output = Command::new(program("h2load"))
        .args([
            format!("-c{}", shape.connections),
            format!("-m{}", shape.streams),
            format!("-n{requests}"),
            "-t1".to_owned(),
            "-d".to_owned(),
        ])
        .arg(file.path())
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg(format!("http://{}/{}", server.address, server.path()))
        .output()
        .expect("h2load runs");
    let seconds = began.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stdout);
    let all_well = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(said.contains(&all_well), "{said}");
    seconds
}
