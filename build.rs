//! Passes the commit and the target to `tollgate --version`, and lists the scripts of algorithms.
//!
//! The Rust of `proto/` is committed below `proto/generated`; `proto/codegen` generates it.

#[path = "build/commit.rs"]
mod commit;

use std::error::Error;
use std::path::{Path, PathBuf};

/// One Lua script per algorithm, named after it. A script may start with `-- use: NAME`, which puts
/// the text of another file of this folder in front of it.
const ALGORITHM_SCRIPTS: &str = "src/store/redis/script/algorithms";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/commit.rs");
    println!("cargo:rerun-if-changed={ALGORITHM_SCRIPTS}");
    name_version();
    write_algorithm_scripts(&PathBuf::from(std::env::var("OUT_DIR")?))
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
