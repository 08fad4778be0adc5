//! The programs in the README are the examples, and run as written.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::service::Service;
use tokio::net::TcpStream;

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: budget
    rate_limit: {unit: day, requests_per_unit: 10000, algorithm: sliding_window}
";

/// Blocks after `<!-- run: FILE -->`, by file.
fn blocks() -> BTreeMap<String, String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("README.md");
    let mut blocks = BTreeMap::new();
    for part in readme.split("<!-- run: ").skip(1) {
        let (file, rest) = part.split_once(" -->\n```rust\n").expect("a block");
        let (code, _) = rest.split_once("```\n").expect("the end of the block");
        blocks.insert(file.to_owned(), code.to_owned());
    }
    blocks
}

#[test]
fn programs_are_the_examples() {
    let blocks = blocks();
    assert_eq!(
        blocks.keys().collect::<Vec<_>>(),
        ["client.rs", "grpc.rs", "http.rs"]
    );
    for (file, code) in blocks {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("examples")
            .join(&file);
        let example = std::fs::read_to_string(example).expect("the example");
        assert!(code == example, "README.md and examples/{file} differ");
    }
}

/// Builds the examples, and returns the folder of their binaries.
fn examples() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    // ring is built again whenever these variables change, and all that needs it.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let built = command
        .args(["build", "--locked", "--examples", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let test = std::env::current_exe().expect("this binary");
    test.ancestors()
        .nth(2)
        .expect("the profile's folder")
        .join("examples")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("an address").port()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run() {
    let examples = examples();
    let service = Service::start(RULES).await;
    let run = |name: &str| {
        let mut command = tokio::process::Command::new(examples.join(name));
        command
            .env("TOLLGATE", service.grpc_address())
            .kill_on_drop(true);
        command
    };
    let output = run("client").output().await.expect("run");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "allowed\ncommitted 120\n",
        "{output:?}"
    );

    for name in ["http", "grpc"] {
        let port = free_port();
        let mut command = run(name);
        let _server = command
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("run");
        let mut tries = 0;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tries += 1;
            assert!(tries < 200, "{name} does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if name == "http" {
            let stream = TcpStream::connect(("127.0.0.1", port))
                .await
                .expect("connect");
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut send, driver) = hyper::client::conn::http1::handshake(io)
                .await
                .expect("HTTP");
            tokio::spawn(driver);
            let request = http::Request::builder().uri("/").header("host", "test");
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new());
            let response = send
                .send_request(request.expect("one"))
                .await
                .expect("a response");
            assert_eq!(response.status(), 200);
        }
    }
}
