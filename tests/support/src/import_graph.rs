//! The import graph of a crate's files, and its cycles.
//!
//! Paths are read from the tokens of each file: `use` trees and paths in code that start with
//! `crate`, `self` or `super`. Comments, unit tests and what only tests compile are left out. A
//! re-export (`pub use`) is no import: what imports a re-exported name imports the file that
//! defines it.

use std::collections::{BTreeMap, BTreeSet};

/// A file or folder by its path, without `.rs`: `store/redis` is `store/redis/mod.rs`, and the
/// empty path is the crate's root.
type Module = String;

/// Which file imports which.
#[derive(Debug)]
pub struct ImportGraph(BTreeMap<Module, BTreeSet<Module>>);

/// A path as written: its segments, and the name it is bound to.
type Path = Vec<String>;

/// The paths that one file imports, and the paths that it re-exports by name.
#[derive(Default)]
struct Paths {
    imported: Vec<Path>,
    reexported: BTreeMap<String, Path>,
}

// === impl ImportGraph ===

impl ImportGraph {
    /// The graph of these files, by their paths below the crate's `src`.
    pub fn of_sources(sources: &BTreeMap<String, String>) -> Self {
        let files: BTreeMap<Module, Paths> = sources
            .iter()
            .map(|(file, text)| (module_of(file), Paths::of_text(text)))
            .collect();
        let imports = files.iter().map(|(module, paths)| {
            let imported = paths.imported.iter().filter_map(|path| {
                let target = origin(&files, module, path)?;
                (target != *module).then_some(target)
            });
            (module.clone(), imported.collect())
        });
        Self(imports.collect())
    }

    /// The files that import each other in a circle, one list for each group.
    pub fn file_cycles(&self) -> Vec<Vec<Module>> {
        cycles(&self.0)
    }

    /// The same between the files and folders of one folder: an import of any file in a folder is
    /// one of the folder.
    pub fn folder_cycles(&self) -> Vec<Vec<Module>> {
        let mut folders: BTreeSet<&str> = self
            .0
            .keys()
            .flat_map(|module| module.match_indices('/').map(|(at, _)| &module[..at]))
            .collect();
        folders.insert("");
        folders
            .into_iter()
            .flat_map(|folder| cycles(&self.within(folder)))
            .collect()
    }

    /// The imports between the children of a folder.
    fn within(&self, folder: &str) -> BTreeMap<Module, BTreeSet<Module>> {
        let child = |module: &str| {
            let inside = match folder {
                "" => module,
                _ => module.strip_prefix(folder)?.strip_prefix('/')?,
            };
            let name = inside.split('/').next()?;
            (!name.is_empty()).then(|| format!("{folder}/{name}").trim_matches('/').to_owned())
        };
        let mut edges = BTreeMap::<Module, BTreeSet<Module>>::new();
        for (from, imported) in &self.0 {
            let Some(from) = child(from) else { continue };
            for to in imported.iter().filter_map(|to| child(to)) {
                if to != from {
                    edges.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        edges
    }
}

fn module_of(file: &str) -> Module {
    let module = file.trim_end_matches(".rs");
    let module = module.strip_suffix("/mod").unwrap_or(module);
    match module {
        "lib" | "main" | "mod" => String::new(),
        module => module.to_owned(),
    }
}

/// The file that defines what `path` names, seen from `module`. None if it is not of this crate.
fn origin(files: &BTreeMap<Module, Paths>, module: &str, path: &[String]) -> Option<Module> {
    let (mut target, mut rest) = resolve(files, module, path)?;
    // A chain of re-exports is short.
    for _ in 0..8 {
        let Some(reexported) = rest
            .first()
            .and_then(|name| files.get(&target)?.reexported.get(name))
        else {
            break;
        };
        (target, rest) = resolve(files, &target, reexported)?;
    }
    Some(target)
}

/// The file that a path leads to, and the rest of the path within it.
fn resolve(
    files: &BTreeMap<Module, Paths>,
    module: &str,
    path: &[String],
) -> Option<(Module, Vec<String>)> {
    let mut at: Vec<&str> = module.split('/').filter(|part| !part.is_empty()).collect();
    let mut segments = path.iter().map(String::as_str).peekable();
    match segments.next()? {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop();
            while segments.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        _ => return None,
    }
    while let Some(segment) = segments.peek() {
        let child = [&at[..], &[*segment]].concat().join("/");
        if !files.contains_key(&child) {
            break;
        }
        at.push(segments.next()?);
    }
    Some((at.join("/"), segments.map(str::to_owned).collect()))
}

// === impl Paths ===

impl Paths {
    fn of_text(text: &str) -> Self {
        let tokens = tokens(&code(text));
        let mut paths = Self::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let previous = at.checked_sub(1).and_then(|at| tokens.get(at));
            let reexports =
                token == "use" && previous.is_some_and(|token| token == "pub" || token == ")");
            if reexports {
                at += 1;
                let mut tree = Vec::new();
                at = parse_tree(&tokens, at, &Vec::new(), &mut tree);
                paths.reexported.extend(tree);
            } else if matches!(&**token, "crate" | "self" | "super")
                && previous.is_none_or(|token| token != "::")
                && tokens.get(at + 1).is_some_and(|token| token == "::")
            {
                let mut tree = Vec::new();
                at = parse_tree(&tokens, at, &Vec::new(), &mut tree);
                paths
                    .imported
                    .extend(tree.into_iter().map(|(_, path)| path));
            } else {
                at += 1;
            }
        }
        paths
    }
}

/// Reads a path or a tree of paths from `at` on; returns the position after it.
fn parse_tree(
    tokens: &[String],
    mut at: usize,
    prefix: &Path,
    tree: &mut Vec<(String, Path)>,
) -> usize {
    let mut path = prefix.clone();
    while let Some(token) = tokens.get(at) {
        if token == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| token != "}") {
                at = parse_tree(tokens, at, &path, tree);
                if tokens.get(at).is_some_and(|token| token == ",") {
                    at += 1;
                }
            }
            return at + 1;
        }
        if token != "self" || path.is_empty() {
            path.push(token.clone());
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|token| token == "as") {
        name = tokens.get(at + 1).cloned().unwrap_or_default();
        at += 2;
    }
    tree.push((name, path));
    at
}

/// The lines of code, without comments and without what only tests compile.
fn code(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(any(test") {
            match lines.next() {
                // The test module is the last item of a file.
                Some(item) if item.trim_end().ends_with('{') => break,
                _ => continue,
            }
        }
        if !trimmed.starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Identifiers, `::` and single characters that are neither.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let length = if word > 0 {
            word
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() {
            tokens.push(token.to_owned());
        }
        rest = after;
    }
    tokens
}

/// Groups of two and more that reach each other. Each node looks at all it reaches: graphs are
/// small.
fn cycles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut left = vec![from];
        while let Some(module) = left.pop() {
            for next in edges.get(module).into_iter().flatten() {
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|module| (module, reach(module))).collect();
    let mut groups = BTreeSet::new();
    for (module, reaches) in &reached {
        let group: Vec<Module> = reaches
            .iter()
            .filter(|other| {
                reached
                    .get(**other)
                    .is_some_and(|back| back.contains(module))
            })
            .map(|other| (*other).clone())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}
