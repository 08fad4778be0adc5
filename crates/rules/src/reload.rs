//! Rules that change while the service runs: polled, read whole, published or rejected.
//!
//! Rules files are polled. Editors rename files, ConfigMaps swap a link two directories up, network
//! file systems send no events; the stamps of all files show each of these, and five polls a second
//! cost nothing. A change is read once two polls in a row agree, so a file that is still being
//! written is left alone. A change during a read starts over. What was tried is not tried again, so
//! an invalid file is rejected once, not five times a second. What could not be read is tried again
//! and reported once.
//!
//! What it deliberately does not do: read the clock or sleep (`app` polls), keep rules, log.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::file::{self, Code, Diagnostic, Options, Report, Span};
use crate::isolation::{LastGood, RulesPart};
use crate::path::{ReadError, RulesPath, Source, read_one};
pub use crate::update::{LoadError, Rules, RulesUpdate, refusal};
use crate::yaml::Node;
use tollgate_limiter::{Digest as _, KeyHasher as _};
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_system::regular_file::FileStamp;

/// How often files that change during a read are read again before the next poll tries.
const READS_MAX: usize = 3;

/// Polls the rules of one service for changes.
#[derive(Debug)]
pub struct RulesWatcher {
    path: RulesPath,
    options: Options,
    /// The files at the last poll.
    seen: Option<Snapshot>,
    /// The files that were last read, accepted or not.
    tried: Option<Snapshot>,
    /// The last error of reading, as it was reported.
    unreadable: Option<String>,
    /// The files of limits that the rules named when they were last read.
    tables: Vec<PathBuf>,
    /// The files of the rules in use.
    good: LastGood<Source>,
}

/// A resource of an xDS server, as the tree that a rules file is parsed into.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its name, which messages give in place of a file's.
    pub name: String,
    /// The root of the tree.
    pub root: Node,
    /// What it was read from, for the hash of the rules.
    pub bytes: Vec<u8>,
}

/// The stamps of the files.
#[derive(Clone, Debug, PartialEq)]
struct Snapshot {
    /// Of the rules files and the overlay, or why they cannot be listed.
    rules: Result<Vec<FileStamp>, String>,
    /// Of each file of limits, or why it has none.
    tables: Vec<Result<FileStamp, String>>,
}

/// Loads the rules at a path, once.
///
/// # Errors
///
/// When they cannot be read or have errors.
pub fn load(path: &RulesPath, options: Options) -> RulesUpdate {
    RulesWatcher::new(path.clone(), options).load()
}

/// A warning if no file was read. The reference takes an empty `RUNTIME_ROOT` as well; elsewhere it
/// is an error of reading.
pub fn no_files(path: &RulesPath, sources: &[Source]) -> Option<Diagnostic> {
    if !sources.is_empty() {
        return None;
    }
    let (RulesPath::Path(directory) | RulesPath::Runtime { directory, .. }) = path;
    let words = "no rules file in this directory: no limit applies, and every request passes";
    let mut warning = Diagnostic::warning(Code::NoFiles, Span::default(), words)
        .help("put a .yaml file there; is the ConfigMap empty?");
    warning.file = directory.display().to_string();
    Some(warning)
}

/// Reads the overlay that the options name.
fn read_overlay(options: &Options) -> Result<Option<Source>, ReadError> {
    options.overlay.as_deref().map(read_one).transpose()
}

/// Loads the rules of these texts, perhaps with the text of an overlay. [`Options::overlay`] is not
/// read.
///
/// # Errors
///
/// When they have errors.
pub fn load_overlaid(
    sources: &[Source],
    overlay: Option<&Source>,
    options: Options,
) -> Result<Rules, Report> {
    let loaded = file::load_overlaid(sources, overlay, options)?;
    let tables = loaded.tables.iter();
    let tables: Vec<[u8; 16]> = tables.map(|table| table.digest.to_le_bytes()).collect();
    Ok(Rules {
        loaded,
        sources: sources.len(),
        // Names are not part of the hash: replicas may mount the same files elsewhere.
        hash: hash(
            sources
                .iter()
                .chain(overlay)
                .map(|source| source.text.as_bytes())
                .chain(tables.iter().map(<[u8; 16]>::as_slice)),
        ),
    })
}

/// Loads the rules of the resources of one response, with the overlay that the options name. Each
/// is made of a part that can be kept.
///
/// # Errors
///
/// When they have errors, or the overlay cannot be read.
pub fn load_resources<P: RulesPart>(
    parts: Vec<P>,
    resource: impl Fn(&P) -> Resource,
    options: &Options,
    good: &LastGood<P>,
) -> RulesUpdate {
    let (overlay, unread) = match read_overlay(options) {
        Ok(overlay) => (overlay, None),
        Err(error) => (None, Some(error)),
    };
    let load = |parts: &[P]| {
        let resources: Vec<_> = parts.iter().map(&resource).collect();
        let documents = resources.iter().map(|one| (&*one.name, &one.root));
        let loaded = file::load_documents(documents, overlay.as_ref(), options.clone());
        let bytes = resources.iter().map(|one| &*one.bytes);
        let overlay = overlay.iter().map(|overlay| overlay.text.as_bytes());
        Ok(Rules {
            loaded: loaded?,
            sources: resources.len(),
            hash: hash(bytes.chain(overlay)),
        })
    };
    if let Some(error) = unread {
        return Err(LoadError::Overlay(error, load(&parts).err().map(Box::new)));
    }
    if options.isolate_domains {
        good.load(parts, |parts, _| {
            load(parts).map_err(LoadError::Diagnostics)
        })
    } else {
        load(&parts).map_err(LoadError::Diagnostics)
    }
}

/// The hash of texts, in their order.
fn hash<'t>(texts: impl Iterator<Item = &'t [u8]>) -> u64 {
    let mut digest = KeyedHash::with_secret([0; 16]).start();
    for text in texts {
        digest.write(&(text.len() as u64).to_le_bytes());
        digest.write(text);
    }
    let bits = digest.finish() & 0xffff_ffff_ffff;
    u64::try_from(bits).unwrap_or_default()
}

// === impl RulesWatcher ===

impl RulesWatcher {
    /// Watches the rules at `path`, which count as not read.
    pub fn new(path: RulesPath, options: Options) -> Self {
        Self {
            path,
            options,
            seen: None,
            tried: None,
            unreadable: None,
            tables: Vec::new(),
            good: LastGood::default(),
        }
    }

    /// A copy that counts the current files as read: for when a poll does not return.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self {
            path: self.path.clone(),
            options: self.options.clone(),
            seen: None,
            tried: Some(self.snapshot()),
            unreadable: None,
            tables: self.tables.clone(),
            good: self.good.clone(),
        }
    }

    /// Polls once. Gives an update when the files have changed and are stable.
    pub fn poll(&mut self) -> Option<RulesUpdate> {
        if let Some(files) = &self.options.limit_files {
            files.free_unused();
        }
        let look = self.snapshot();
        if self.tried.as_ref() == Some(&look) {
            self.seen = Some(look);
            return None;
        }
        if self.seen.as_ref() != Some(&look) {
            self.seen = Some(look);
            return None;
        }
        self.read_if_stable(&look)
    }

    /// Reads now, whatever the last poll saw. Files that keep changing are left to the polls: what
    /// was read may be half of one version and half of another.
    pub fn read(&mut self) -> Option<RulesUpdate> {
        // The caller asked for a read, so an error is reported even if it was before.
        self.unreadable = None;
        (0..READS_MAX).find_map(|_| {
            let look = self.snapshot();
            self.read_if_stable(&look)
        })
    }

    /// Loads the files, with the last good ones of domains with errors if the options say so.
    fn load(&self) -> RulesUpdate {
        let Self {
            path,
            options,
            good,
            ..
        } = self;
        let sources = path.read().map_err(LoadError::Read)?;
        let overlay = read_overlay(options).map_err(|error| LoadError::Overlay(error, None))?;
        let no_files = no_files(path, &sources);
        let load = |sources: &[Source], kept: &BTreeSet<String>| {
            if let Some(files) = &options.limit_files {
                files.keep(kept);
            }
            let rules = load_overlaid(sources, overlay.as_ref(), options.clone());
            rules.map_err(LoadError::Diagnostics)
        };
        let mut rules = if options.isolate_domains {
            good.load(sources, load)?
        } else {
            load(&sources, &BTreeSet::new())?
        };
        rules.loaded.warnings.extend(no_files);
        Ok(rules)
    }

    fn read_if_stable(&mut self, look: &Snapshot) -> Option<RulesUpdate> {
        let files = self.options.limit_files.clone();
        let files = files.unwrap_or_default();
        files.begin();
        let change = self.load();
        // Files of limits that the rules name now belong to what was tried.
        self.tables = files.touched();
        let after = self.snapshot();
        if after.rules != look.rules || !files.are_unchanged() {
            self.seen = Some(after);
            return None;
        }
        let unread = match &change {
            Err(error @ (LoadError::Read(_) | LoadError::Overlay(..))) => Some(error.to_string()),
            change if files.has_failed_reads() => refusal(change),
            _ => None,
        };
        let Some(words) = unread else {
            self.unreadable = None;
            self.tried = Some(after);
            return Some(change);
        };
        // The error may go away without a change of the files (no descriptor left, a mount that
        // returns): try again at the next poll, and report it once.
        let words = Some(words);
        self.tried = None;
        let said = self.unreadable == words;
        self.unreadable = words;
        (!said).then_some(change)
    }

    fn snapshot(&self) -> Snapshot {
        let stamp = |path: &PathBuf| {
            let stamp = FileStamp::at(path.clone());
            stamp.map_err(|error| format!("{}: {error}", path.display()))
        };
        let rules = || {
            let mut files = self.path.list().map_err(|error| error.to_string())?;
            files.extend(self.options.overlay.as_ref().map(stamp).transpose()?);
            Ok(files)
        };
        Snapshot {
            rules: rules(),
            tables: self.tables.iter().map(stamp).collect(),
        }
    }
}
