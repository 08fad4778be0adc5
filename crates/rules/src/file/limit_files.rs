//! The files of limits that rules name: where they are, and their tables, each read once.
//!
//! A table is read again when its file's stamp differs, and made again when its bytes differ. Until
//! then every load uses the same one. A table that is not in use any more is kept until nothing
//! else holds it, and freed by a poll: to free a large table takes milliseconds, which a thread
//! that decides must not spend.
//!
//! What it deliberately does not do: parse (`limits_from`), or read a table while a lock is held
//! that a request needs. Only loads and polls use this.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::file::{Code, DIAGNOSTICS_MAX};
use tollgate_limiter::{Digest as _, KeyHasher as _, LimitTable};
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_system::per_thread::lock;
use tollgate_system::regular_file;
use tollgate_system::regular_file::FileStamp;

/// How many bad lines of a file are reported. Further ones are counted.
pub const LINE_ERRORS_MAX: usize = DIAGNOSTICS_MAX;

/// How large one file may be, in bytes.
const TABLE_BYTES_MAX: u64 = 1 << 30;

/// What is wrong with a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LineError {
    /// Its number, from 1.
    pub line: usize,
    /// The code of its diagnostic.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// Why there is no table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TableErrors {
    /// The file cannot be read.
    File {
        /// Why.
        message: String,
        /// What to do.
        help: &'static str,
    },
    /// Some lines are bad.
    Lines {
        /// The file.
        file: String,
        /// The first ones, at most [`LINE_ERRORS_MAX`].
        errors: Vec<LineError>,
        /// How many more there are.
        omitted: usize,
    },
}

/// The result of reading a file.
pub type ReadTable = Result<LimitTable, TableErrors>;

/// The files of limits of one set of rules. Copies share their tables.
#[derive(Clone, Debug, Default)]
pub struct LimitFiles(Arc<Mutex<State>>);

/// A table, and what its file held.
#[derive(Clone, Debug)]
pub struct LoadedTable {
    /// The table.
    pub table: Arc<LimitTable>,
    /// The same for the same bytes.
    pub digest: u128,
}

/// The stamp of a file of limits, or why it has none.
pub type TableStamp = (PathBuf, Result<FileStamp, String>);

/// Why the bytes of a file that has a stamp are not there.
#[derive(Debug, thiserror::Error)]
enum ReadFailure {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("larger than {} MiB", TABLE_BYTES_MAX >> 20)]
    TooLarge,
}

impl ReadFailure {
    /// Whether another attempt may succeed although the file has not changed.
    fn may_go_away(&self) -> bool {
        // What is no regular file stays none.
        let stays = [ErrorKind::InvalidInput, ErrorKind::IsADirectory];
        matches!(self, Self::Io(error) if !stays.contains(&error.kind()))
    }
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<PathBuf, (FileStamp, LoadedTable)>,
    /// The same before the current load.
    before: HashMap<PathBuf, (FileStamp, LoadedTable)>,
    /// The rules files whose tables stay as they were before the current load.
    kept: BTreeSet<String>,
    /// The files of the current load, as they were before they were read.
    touched: Vec<TableStamp>,
    /// Whether the current load could not read a file that is there.
    has_failed_reads: bool,
    /// Tables that were replaced, until nothing else holds them.
    retired: Vec<Arc<LimitTable>>,
}

// === impl LimitFiles ===

impl PartialEq for LimitFiles {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LimitFiles {}

impl LimitFiles {
    /// Begins a load.
    pub fn begin(&self) {
        let mut state = lock(&self.0);
        let State { known, before, .. } = &mut *state;
        before.clone_from(known);
        state.touched.clear();
        state.has_failed_reads = false;
        state.kept.clear();
    }

    /// Keeps the tables of these rules files as they were before the current load.
    pub fn keep(&self, rules_files: &BTreeSet<String>) {
        lock(&self.0).kept.clone_from(rules_files);
    }

    /// Whether the last load could not read a file that is there. The error may go away without a
    /// change of the file's stamp.
    pub fn has_failed_reads(&self) -> bool {
        lock(&self.0).has_failed_reads
    }

    /// The files of the last load.
    pub fn touched(&self) -> Vec<PathBuf> {
        let state = lock(&self.0);
        state.touched.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Whether the files of the last load are as they were before they were read.
    pub fn are_unchanged(&self) -> bool {
        let touched = lock(&self.0).touched.clone();
        touched
            .into_iter()
            .all(|known| stamp(known.0.clone()) == known)
    }

    /// Frees the tables that nothing else holds, and forgets those that the last load did not use.
    pub fn free_unused(&self) {
        let mut state = lock(&self.0);
        let State {
            known,
            touched,
            retired,
            before,
            ..
        } = &mut *state;
        before.clear();
        let unused = known.extract_if(|path, _| touched.iter().all(|(used, _)| used != path));
        retired.extend(unused.map(|(_, (_, loaded))| loaded.table));
        retired.retain(|table| Arc::strong_count(table) > 1);
    }

    /// The table of the file that a rules file names, made by `read_table` if it is not known.
    ///
    /// # Errors
    ///
    /// When it cannot be read or has bad lines.
    pub(super) fn read(
        &self,
        rules_file: &str,
        name: &str,
        read_table: impl Fn(&str, &[u8]) -> ReadTable,
    ) -> Result<LoadedTable, TableErrors> {
        let folder = Path::new(rules_file).parent().unwrap_or(Path::new(""));
        let path = folder.join(name);
        let stamp = stamp(path.clone());
        let known = {
            let mut state = lock(&self.0);
            if !state.touched.contains(&stamp) {
                state.touched.push(stamp.clone());
            }
            if state.kept.contains(rules_file)
                && let Some(before) = state.before.get(&path).cloned()
            {
                // With its old stamp, so that the file is read when it is asked for again.
                state.known.insert(path, before.clone());
                return Ok(before.1);
            }
            state.known.get(&path).cloned()
        };
        let file = path.display().to_string();
        let stamp = stamp.1.map_err(|error| unreadable(&file, &error))?;
        if let Some((read, loaded)) = &known
            && *read == stamp
        {
            return Ok(loaded.clone());
        }
        let bytes = read_bytes(&path, &stamp).map_err(|error| {
            lock(&self.0).has_failed_reads |= error.may_go_away();
            unreadable(&file, &error.to_string())
        })?;
        let mut digest = KeyedHash::with_secret([0; 16]).start();
        digest.write(&bytes);
        let digest = digest.finish();
        let loaded = match known {
            Some((_, loaded)) if loaded.digest == digest => loaded,
            _ => LoadedTable {
                table: Arc::new(read_table(&file, &bytes)?),
                digest,
            },
        };
        let mut state = lock(&self.0);
        let before = state.known.insert(path, (stamp, loaded.clone()));
        let before = before.map(|(_, before)| before.table);
        let replaced = before.filter(|before| !Arc::ptr_eq(before, &loaded.table));
        state.retired.extend(replaced);
        Ok(loaded)
    }
}

fn stamp(path: PathBuf) -> TableStamp {
    let stamp = FileStamp::at(path.clone()).map_err(|error| error.to_string());
    (path, stamp)
}

fn unreadable(file: &str, error: &str) -> TableErrors {
    TableErrors::File {
        message: format!("the file of limits cannot be read: {file}: {error}"),
        help: "name a .csv or .jsonl file, relative to this file",
    }
}

fn read_bytes(path: &Path, stamp: &FileStamp) -> Result<Vec<u8>, ReadFailure> {
    if stamp.bytes() > TABLE_BYTES_MAX {
        return Err(ReadFailure::TooLarge);
    }
    let file = regular_file::open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.bytes()).unwrap_or_default());
    // It may grow after its stamp was taken.
    let most = TABLE_BYTES_MAX.saturating_add(1);
    file.take(most).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TABLE_BYTES_MAX {
        return Err(ReadFailure::TooLarge);
    }
    Ok(bytes)
}
