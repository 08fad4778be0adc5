//! Rules that change while the service runs: seen, read whole, taken or refused.
//!
//! Why looking and not being told: editors rename, ConfigMaps swap a link two directories up,
//! network file systems send no events; a look at each file's identity, size and times sees all of
//! them alike, and five a second cost nothing. How: a change is read once two looks in a row agree,
//! so a file that is still being written is left alone; a change while reading starts over. What
//! was tried is not tried again, so a bad file is refused once and not five times a second; what
//! could not be read is tried again and said once.
//!
//! What it deliberately does not do: ask the time or sleep (`app` looks at its own pace), keep
//! rules, log.

use std::fmt;

use crate::file_stamp::FileStamp;
use crate::keyed_hash::KeyedHash;
use crate::rules::file::{self, Diagnostic, LoadedRules, Options};
use crate::rules::path::{ReadError, RulesPath};
use tollgate_limiter::{Digest as _, KeyHasher as _};

/// How often files that change while they are read are read anew before they are left to the looks.
const READS_MAX: usize = 3;

/// Looks after the rules of one service.
#[derive(Debug)]
pub struct RulesWatcher {
    path: RulesPath,
    options: Options,
    /// What the last look saw.
    seen: Option<Snapshot>,
    /// What was last read, taken or not.
    tried: Option<Snapshot>,
    /// Why it could not be read the last time, as it was said.
    unreadable: Option<String>,
}

/// What a change came to.
pub type RulesUpdate = Result<Rules, LoadError>;

/// Rules as loaded, and what tells them from others.
#[derive(Debug)]
pub struct Rules {
    /// The rules, and what is worth a look.
    pub loaded: LoadedRules,
    /// The same for the same files, on every replica: 48 bits, which a metric holds exactly.
    pub hash: u64,
}

/// Why rules were not taken.
#[derive(Debug)]
pub enum LoadError {
    /// They could not be read.
    Read(ReadError),
    /// They have problems: all of them.
    Diagnostics(Vec<Diagnostic>),
    /// They came from an xDS server, in no shape of rules.
    Resource(String),
    /// Reading them met a mistake of ours.
    Defect(String),
}

/// The files there are, or why that cannot be said.
type Snapshot = Result<Vec<FileStamp>, String>;

/// Reads and checks the rules at a path, once.
///
/// # Errors
///
/// When they cannot be read or have problems.
pub fn load(path: &RulesPath, options: Options) -> RulesUpdate {
    let sources = path.read().map_err(LoadError::Read)?;
    let loaded = file::load(&sources, options).map_err(LoadError::Diagnostics)?;
    Ok(Rules {
        loaded,
        // Not of the name: replicas may mount the same files elsewhere.
        hash: hash(sources.iter().map(|source| source.text.as_bytes())),
    })
}

/// What tells texts from others, in their order.
pub(crate) fn hash<'t>(texts: impl Iterator<Item = &'t [u8]>) -> u64 {
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
    /// Looks after the rules at `path`, none of which it has seen.
    pub fn new(path: RulesPath, options: Options) -> Self {
        Self {
            path,
            options,
            seen: None,
            tried: None,
            unreadable: None,
        }
    }

    /// The same, as if it had read what it last saw: for when a look does not come back.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self {
            path: self.path.clone(),
            options: self.options,
            seen: None,
            tried: Some(self.snapshot()),
            unreadable: None,
        }
    }

    /// Looks once. Something comes back when the files have changed and come to rest.
    pub fn poll(&mut self) -> Option<RulesUpdate> {
        let look = self.snapshot();
        if self.tried.as_ref() == Some(&look) {
            self.seen = Some(look);
            return None;
        }
        if self.seen.as_ref() != Some(&look) {
            self.seen = Some(look);
            return None;
        }
        self.read_if_stable(look)
    }

    /// Reads now, whatever the last look saw. Files that will not come to rest while they are read
    /// are left to the looks: what was read may be half of one version and half of another.
    pub fn read(&mut self) -> Option<RulesUpdate> {
        // Who asks is told, also what was said before.
        self.unreadable = None;
        (0..READS_MAX).find_map(|_| {
            let look = self.snapshot();
            self.read_if_stable(look)
        })
    }

    fn read_if_stable(&mut self, look: Snapshot) -> Option<RulesUpdate> {
        let change = load(&self.path, self.options);
        let after = self.snapshot();
        if after != look {
            self.seen = Some(after);
            return None;
        }
        let Err(LoadError::Read(error)) = &change else {
            self.unreadable = None;
            self.tried = Some(look);
            return Some(change);
        };
        // The system may change its mind though the files do not (no descriptor left, a mount that
        // comes back): try again at the next look, and say it once.
        let words = Some(error.to_string());
        self.tried = None;
        let said = self.unreadable == words;
        self.unreadable = words;
        (!said).then_some(change)
    }

    fn snapshot(&self) -> Snapshot {
        self.path.list().map_err(|error| error.to_string())
    }
}

// === impl LoadError ===

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Resource(what) => f.write_str(what),
            Self::Defect(how) => write!(f, "this is a defect in tollgate: {how}"),
            Self::Diagnostics(problems) => {
                for (position, problem) in problems.iter().enumerate() {
                    if position > 0 {
                        writeln!(f)?;
                    }
                    problem.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {}
