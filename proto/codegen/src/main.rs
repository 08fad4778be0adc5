//! Generates the Rust of `proto/generated` from the `.proto` files, without `protoc`.
//!
//! The generated code is committed, so that a build of tollgate compiles no code generator.
//! `make proto` runs this program, and its test fails while the committed code differs.
//!
//! One thing is unusual. Envoy copies header bytes into protobuf strings, whether they are valid
//! UTF-8 or not. A decoder that requires UTF-8 rejects the whole message: one 0xFF byte in a
//! header, and Envoy lets the client past the limit. So the fields in `BYTES_NOT_TEXT` are declared
//! `string` in `proto/` (what Envoy declares, what reflection publishes, what clients generate
//! from) and are `bytes` in the generated code. The two are the same on the wire.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Message path and field, in protobuf names.
const BYTES_NOT_TEXT: &[(&str, &str)] = &[
    (
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
        "key",
    ),
    (
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
        "value",
    ),
    ("envoy.service.ratelimit.v3.RateLimitRequest", "domain"),
    ("kuadrant.service.ratelimit.v1.ReserveRequest", "domain"),
    ("kuadrant.service.ratelimit.v1.CommitRequest", "domain"),
    (
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports",
        "domain",
    ),
    (
        "envoy.service.rate_limit_quota.v3.BucketId.BucketEntry",
        "key",
    ),
    (
        "envoy.service.rate_limit_quota.v3.BucketId.BucketEntry",
        "value",
    ),
];

/// The files of the services. Reflection publishes them, with what they import.
const PUBLISHED: [&str; 4] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "tollgate/v1/rate_limits.proto",
    "kuadrant/service/ratelimit/v1/kuadrantrls.proto",
];

/// The folder `proto`.
fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_owned)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = proto().join("generated");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    generate(&folder)
}

/// Writes the Rust of every `.proto` file, and the descriptors that reflection publishes.
fn generate(out_dir: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out_dir)?;
    let published = protox::compile(PUBLISHED, [proto()])?;
    fs::write(
        out_dir.join("published_descriptors.bin"),
        published.encode_to_vec(),
    )?;

    let mut compiled = published;
    let changed = declare_bytes(&mut compiled);
    if changed != BYTES_NOT_TEXT.len() {
        return Err(format!(
            "{changed} of {} fields in BYTES_NOT_TEXT were found in proto/",
            BYTES_NOT_TEXT.len()
        )
        .into());
    }
    let mut config = prost_build::Config::new();
    config.bytes(["."]); // slices of the frame, not copies
    tonic_prost_build::configure()
        .out_dir(out_dir)
        .emit_rerun_if_changed(false)
        .build_client(true)
        .build_server(true)
        .compile_fds_with_config(compiled, config)?;
    compile_xds(out_dir)?;
    compile_files(out_dir)
}

/// Generates the xDS client in a folder of its own: it shares a package with the rest and is not
/// published. The server side is generated as well, for tests.
fn compile_xds(out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let files = [
        "envoy/service/discovery/v3/discovery.proto",
        "ratelimit/config/ratelimit/v3/rls_conf.proto",
    ];
    let compiled = protox::compile(files, [proto()])?;
    let folder = out_dir.join("xds");
    fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .out_dir(folder)
        .emit_rerun_if_changed(false)
        .build_client(true)
        .build_server(true)
        .compile_fds(compiled)?;
    Ok(())
}

/// Generates the messages of recordings and snapshots, which are not published by reflection.
fn compile_files(out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let files = [
        "tollgate/recording/v1/recording.proto",
        "tollgate/snapshot/v1/snapshot.proto",
    ];
    let compiled = protox::compile(files, [proto()])?;
    prost_build::Config::new()
        .out_dir(out_dir)
        .compile_fds(compiled)?;
    Ok(())
}

/// Turns every field of `BYTES_NOT_TEXT` into a `bytes` field; returns how many it found.
fn declare_bytes(files: &mut FileDescriptorSet) -> usize {
    files
        .file
        .iter_mut()
        .map(|file| {
            let package = file.package().to_owned();
            if package.ends_with("rate_limit_quota.v3") {
                // The entry of a map has no place in the file, and prost looks for each message's.
                file.source_code_info = None;
            }
            declare_bytes_in(&mut file.message_type, &package)
        })
        .sum()
}

fn declare_bytes_in(messages: &mut [DescriptorProto], parent: &str) -> usize {
    let mut changed = 0;
    for message in messages {
        let path = format!("{parent}.{}", message.name());
        if BYTES_NOT_TEXT.iter().any(|(changes, _)| *changes == path) {
            // An entry of a map of texts is a message in a list: the same on the wire.
            if let Some(options) = &mut message.options {
                options.map_entry = None;
            }
        }
        for field in &mut message.field {
            if BYTES_NOT_TEXT.contains(&(path.as_str(), field.name())) {
                field.set_type(Type::Bytes);
                changed += 1;
            }
        }
        changed += declare_bytes_in(&mut message.nested_type, &path);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every file below a folder, by its path from there.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("its entry").path();
            let name = PathBuf::from(path.file_name().expect("a name"));
            if path.is_dir() {
                let below = files(&path).into_iter();
                found.extend(below.map(|(file, bytes)| (name.join(file), bytes)));
            } else {
                found.insert(name, fs::read(&path).expect("the file"));
            }
        }
        found
    }

    #[test]
    fn the_generated_code_is_fresh() {
        let fresh = tempfile::tempdir().expect("a temporary directory");
        generate(fresh.path()).expect("generated code");
        let (fresh, committed) = (files(fresh.path()), files(&proto().join("generated")));
        let names = |files: &BTreeMap<PathBuf, _>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&committed), names(&fresh), "run `make proto`");
        for (name, bytes) in fresh {
            let same = committed.get(&name) == Some(&bytes);
            assert!(same, "{} is out of date; run `make proto`", name.display());
        }
    }
}
