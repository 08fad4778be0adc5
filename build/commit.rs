//! The commit that a build comes from, without running git.
//!
//! Sources, in this order: the variable `TOLLGATE_COMMIT` (an image is built without `.git`), the
//! file that cargo adds to a packaged crate, and `.git`. Without any of them the commit is unknown.
//!
//! What it deliberately does not do: look in the folders above. Sources that lie inside another
//! repository are not at its commit.

use std::fs;
use std::path::{Path, PathBuf};

/// The number of characters of a commit that are shown.
const SHOWN: usize = 12;

/// A commit, and the files that change with it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Commit {
    /// The start of its hash.
    pub(crate) hash: Option<String>,
    /// Files of `.git` that name it.
    pub(crate) watched: Vec<PathBuf>,
}

/// The commit of the sources in `root`. A variable that is set and empty means unknown.
pub(crate) fn of_sources(root: &Path, variable: Option<&str>) -> Commit {
    if let Some(hash) = variable {
        return Commit {
            hash: shortened(hash),
            watched: Vec::new(),
        };
    }
    match fs::read_to_string(root.join(".cargo_vcs_info.json")) {
        Ok(packaged) => Commit {
            hash: packaged
                .split_once("\"sha1\"")
                .and_then(|(_, rest)| rest.split('"').nth(1))
                .and_then(shortened),
            watched: Vec::new(),
        },
        Err(_) => of_git(root).unwrap_or_default(),
    }
}

fn of_git(root: &Path) -> Option<Commit> {
    let mut folder = root.join(".git");
    if let Ok(file) = fs::read_to_string(&folder) {
        // In a worktree `.git` is a file that names the folder.
        folder = root.join(file.strip_prefix("gitdir:")?.trim());
    }
    let head = folder.join("HEAD");
    let text = fs::read_to_string(&head).ok()?;
    let mut commit = Commit {
        hash: None,
        watched: vec![head],
    };
    let Some(reference) = text.strip_prefix("ref:").map(str::trim) else {
        commit.hash = shortened(&text);
        return Some(commit);
    };
    // Branches of a worktree are in the repository's own folder.
    let common = fs::read_to_string(folder.join("commondir"));
    let common = common.map_or(folder.clone(), |path| folder.join(path.trim()));
    let (loose, packed) = (common.join(reference), common.join("packed-refs"));
    commit.hash = match fs::read_to_string(&loose) {
        Ok(hash) => shortened(&hash),
        Err(_) => fs::read_to_string(&packed).ok().and_then(|packed| {
            let line = packed
                .lines()
                .find(|line| line.ends_with(&format!(" {reference}")))?;
            shortened(line)
        }),
    };
    let existing = [loose, packed].into_iter().filter(|file| file.exists());
    commit.watched.extend(existing);
    Some(commit)
}

/// The start of a hash, if a text begins with one.
fn shortened(text: &str) -> Option<String> {
    let hash = text.split_whitespace().next()?;
    let is_hash = hash.len() >= SHOWN && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.chars().take(SHOWN).collect())
}
