//! Files that are looked at until they change.
//!
//! How: as rules are (`reload`): a change is read when two looks in a row agree, and nothing is taken that changed while it
//! was read. What was refused is not tried again, so that it is said once; but for what time alone may mend.
//!
//! What it deliberately does not do: ask the time or sleep.

use std::path::PathBuf;

use crate::rules::path::Found;
use crate::tls::TlsError;

/// Looks after some files.
#[derive(Debug)]
pub struct Watch {
    files: Vec<PathBuf>,
    seen: Option<Look>,
    tried: Option<Look>,
    /// Of which files what was said last, where it may come again.
    said: Option<(Look, String)>,
}

type Look = Result<Vec<Found>, String>;

// === impl Watch ===

impl Watch {
    /// Looks after these files, which are taken for read as they are now.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let mut watch = Self {
            files,
            seen: None,
            tried: None,
            said: None,
        };
        watch.tried = Some(watch.list());
        watch
    }

    /// Looks once. What `load` makes of the files comes back when they have changed and come to rest.
    pub fn look<T>(
        &mut self,
        load: impl FnOnce() -> Result<T, TlsError>,
    ) -> Option<Result<T, TlsError>> {
        let look = self.list();
        let known = self.tried.as_ref() == Some(&look);
        if known || self.seen.as_ref() != Some(&look) {
            self.seen = Some(look);
            return None;
        }
        let loaded = load();
        let after = self.list();
        if after != look {
            self.seen = Some(after);
            return None;
        }
        let words = match &loaded {
            Err(error) if error.is_of_time() => Some("of time".to_owned()),
            // Some other look may find the system in a better mood.
            Err(TlsError::Io { error, .. }) => Some(error.to_string()),
            _ => None,
        };
        let said = words.map(|words| (look.clone(), words));
        self.tried = said.is_none().then_some(look);
        let again = said.is_some() && self.said == said;
        self.said = said;
        (!again).then_some(loaded)
    }

    fn list(&self) -> Look {
        let found = self.files.iter().map(|file| Found::at(file.clone()));
        found
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }
}
