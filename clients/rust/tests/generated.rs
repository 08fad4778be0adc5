//! The generated code is that of the proto files.
//!
//! `TOLLGATE_GENERATE=1 cargo test --test generated` writes it.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use std::path::Path;

const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/generated");
const FILES: [&str; 2] = ["tollgate.v1.rs", "tollgate.clients.rls.v3.rs"];

#[test]
fn generated_code_is_current() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    generate(folder.path());
    for file in FILES {
        let generated = std::fs::read_to_string(folder.path().join(file)).expect("generated");
        let committed = Path::new(GENERATED).join(file);
        if std::env::var_os("TOLLGATE_GENERATE").is_some() {
            std::fs::write(&committed, &generated).expect("write generated code");
        }
        let committed = std::fs::read_to_string(committed).unwrap_or_default();
        assert!(
            committed == generated,
            "src/generated/{file} is out of date; run TOLLGATE_GENERATE=1 cargo test --test generated"
        );
    }
}

fn generate(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let service = root.join("../../proto");
    let clients = root.join("../proto");
    let files = [
        service.join("tollgate/v1/rate_limits.proto"),
        clients.join("rls.proto"),
    ];
    let compiled = protox::compile(files, [service, clients]).expect("the protos compile");
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .out_dir(folder)
        .compile_fds(compiled)
        .expect("generate code");
}
