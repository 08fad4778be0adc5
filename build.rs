//! Generates Rust from `proto/`, without `protoc` on the machine.
//!
//! One thing is unusual. Envoy copies header bytes into protobuf strings, whether they are valid
//! UTF-8 or not. A decoder that requires UTF-8 rejects the whole message: one 0xFF byte in a
//! header, and Envoy lets the client past the limit. So the fields in `BYTES_NOT_TEXT` are declared
//! `string` in `proto/` (what Envoy declares, what reflection publishes, what clients generate
//! from) and are `bytes` in the generated code. The two are the same on the wire.
//!
//! It also passes the commit and the target to `tollgate --version`.

#[path = "build/commit.rs"]
mod commit;

use std::error::Error;
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

/// One Lua script per algorithm, named after it. A script may start with `-- use: NAME`, which puts
/// the text of another file of this folder in front of it.
const ALGORITHM_SCRIPTS: &str = "src/store/redis/script/algorithms";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/commit.rs");
    println!("cargo:rerun-if-changed={ALGORITHM_SCRIPTS}");
    name_version();

    let published = protox::compile(PUBLISHED, ["proto"])?;
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(
        out_dir.join("published_descriptors.bin"),
        published.encode_to_vec(),
    )?;

    let mut compiled = published;
    let changed = declare_bytes(&mut compiled);
    if changed != BYTES_NOT_TEXT.len() {
        return Err(format!(
            "build.rs: {changed} of {} fields in BYTES_NOT_TEXT were found in proto/",
            BYTES_NOT_TEXT.len()
        )
        .into());
    }
    let mut config = prost_build::Config::new();
    config.bytes(["."]); // slices of the frame, not copies
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds_with_config(compiled, config)?;
    compile_xds(&out_dir)?;
    compile_files()?;
    write_algorithm_scripts(&out_dir)
}

/// Sets `BUILD_COMMIT` and `BUILD_TARGET` for `tollgate --version`. Cargo also sets them for
/// processes that it runs, so they are not named like `TOLLGATE_COMMIT`, which this script reads.
/// A debug build does not read `.git`: each commit would compile the crate again.
fn name_version() {
    println!("cargo:rerun-if-env-changed=TOLLGATE_COMMIT");
    let variable = |name| std::env::var(name).ok();
    let named = variable("TOLLGATE_COMMIT");
    let debug = named.is_none() && variable("PROFILE").as_deref() == Some("debug");
    let commit = if debug {
        "unknown (debug build)".to_owned()
    } else {
        let found = commit::of_sources(Path::new("."), named.as_deref());
        for file in found.watched {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        found.hash.unwrap_or_else(|| "unknown".to_owned())
    };
    println!("cargo:rustc-env=BUILD_COMMIT={commit}");
    let target = variable("TARGET").unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=BUILD_TARGET={target}");
}

/// Generates the xDS client in a folder of its own: it shares a package with the rest and is not
/// published. The server side is generated as well, for tests.
fn compile_xds(out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let files = [
        "envoy/service/discovery/v3/discovery.proto",
        "ratelimit/config/ratelimit/v3/rls_conf.proto",
    ];
    let compiled = protox::compile(files, ["proto"])?;
    let folder = out_dir.join("xds");
    std::fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .out_dir(folder)
        .build_client(true)
        .build_server(true)
        .compile_fds(compiled)?;
    Ok(())
}

/// Generates the messages of recordings and snapshots, which are not published by reflection.
fn compile_files() -> Result<(), Box<dyn Error>> {
    let files = [
        "tollgate/recording/v1/recording.proto",
        "tollgate/snapshot/v1/snapshot.proto",
    ];
    let compiled = protox::compile(files, ["proto"])?;
    prost_build::Config::new().compile_fds(compiled)?;
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

/// Writes the algorithms' scripts as a list of names and texts, so that a new one is only a new
/// file.
fn write_algorithm_scripts(out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let folder = std::env::current_dir()?.join(ALGORITHM_SCRIPTS);
    let read = |name: &str| std::fs::read_to_string(folder.join(name).with_extension("lua"));
    let mut scripts = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let (Some(name), Some("lua")) = (
            path.file_stem().and_then(|name| name.to_str()),
            path.extension().and_then(|extension| extension.to_str()),
        ) else {
            continue;
        };
        let text = read(name)?;
        let text = match text
            .strip_prefix("-- use: ")
            .and_then(|rest| rest.split_once('\n'))
        {
            Some((used, own)) => read(used)? + own,
            None => text,
        };
        scripts.insert(name.to_owned(), text);
    }
    let pairs: Vec<_> = scripts.iter().collect();
    std::fs::write(out_dir.join("algorithm_scripts.rs"), format!("&{pairs:?}"))?;
    Ok(())
}
