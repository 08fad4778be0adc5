//! Lists the scripts of algorithms, so that a new one is only a new file.

use std::error::Error;
use std::path::PathBuf;

/// One Lua script per algorithm, named after it. A script may start with `-- use: NAME`, which puts
/// the text of another file of this folder in front of it.
const ALGORITHM_SCRIPTS: &str = "src/script/algorithms";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={ALGORITHM_SCRIPTS}");
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
    let list = PathBuf::from(std::env::var("OUT_DIR")?).join("algorithm_scripts.rs");
    std::fs::write(list, format!("&{pairs:?}"))?;
    Ok(())
}
