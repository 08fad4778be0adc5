//! Loads the rules of several domains so that a bad one stops no other.
//!
//! All files of a domain stand or fall together: with an error in one of them, the domain keeps its
//! last good files. A domain without any is left out. A file without a domain, such as one of
//! plans, is kept by its name.
//!
//! How: rules are always loaded as a whole. Where files have errors, the loader gets the last good
//! ones in their place, and is asked again. If the whole set is not valid with them either, it is
//! rejected whole: the last good files of a domain may need a plan that is gone.
//!
//! What it deliberately does not do: read files, or load them (`file`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::file::Report;
use crate::path::Source;
use crate::refused_domain::RefusedDomain;
use crate::update::{LoadError, Rules, RulesUpdate};
use crate::yaml::{self, Content};
use tollgate_system::per_thread::lock;

/// How often the loader is asked, at most. Errors of a kind are found at once, and there are few
/// kinds.
const LOADS_MAX: usize = 16;

/// A file or a resource.
pub trait RulesPart: Clone {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// Its domain, and whether that could be read. It is a guess otherwise.
    fn domain(&self) -> (Option<String>, bool);
}

/// The last good files. Copies share them.
#[derive(Clone, Debug)]
pub struct LastGood<P>(Arc<Mutex<InUse<P>>>);

#[derive(Debug)]
struct InUse<P> {
    parts: Vec<P>,
    /// The hash of their rules; none before the first.
    hash: Option<u64>,
}

/// A part, and what it stands or falls with: a domain, or itself.
#[derive(Clone, Debug)]
struct Owned<P> {
    owner: Owner,
    /// Whether it could be parsed.
    is_read: bool,
    part: P,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Owner {
    Domain(String),
    File(String),
}

// === impl RulesPart ===

impl RulesPart for Source {
    fn name(&self) -> &str {
        &self.name
    }

    fn domain(&self) -> (Option<String>, bool) {
        let Ok(document) = yaml::parse(&self.text) else {
            let mut lines = self.text.lines();
            let written = lines.find_map(|line| line.strip_prefix("domain:"));
            let name = written.and_then(|name| name.split(" #").next());
            let name = name.map(|name| name.trim().trim_matches(['"', '\'']).to_owned());
            return (name.filter(|name| !name.is_empty()), false);
        };
        let root = document.root.as_ref().map(|root| &root.content);
        let Some(Content::Mapping(fields)) = root else {
            return (None, true);
        };
        let mut named = fields.iter().rev();
        let domain = named.find(|(name, _)| name.text() == Some("domain"));
        let name = domain.and_then(|(_, name)| name.text());
        (
            name.map(str::to_owned).filter(|name| !name.is_empty()),
            true,
        )
    }
}

// === impl LastGood ===

impl<P> Default for LastGood<P> {
    fn default() -> Self {
        let parts = Vec::new();
        Self(Arc::new(Mutex::new(InUse { parts, hash: None })))
    }
}

impl<P: RulesPart> LastGood<P> {
    /// Loads the newest parts by `load`, which also gets the names of those that are kept.
    ///
    /// # Errors
    ///
    /// Those of the newest parts, when no domain of theirs can be used. Nothing changes then.
    pub fn load(
        &self,
        newest: Vec<P>,
        mut load: impl FnMut(&[P], &BTreeSet<String>) -> RulesUpdate,
    ) -> RulesUpdate {
        let mut in_use = lock(&self.0);
        let mut whole = match load(&newest, &BTreeSet::new()) {
            Ok(rules) => {
                *in_use = InUse {
                    parts: newest,
                    hash: Some(rules.hash),
                };
                return Ok(rules);
            }
            Err(LoadError::Diagnostics(report)) if !report.only_overlay => report,
            Err(error) => return Err(error),
        };
        let good = owned(&in_use.parts, &[]);
        let mut parts = owned(&newest, &good);
        let found = isolate(&whole, &mut parts, &good, &mut load);
        let Some((mut rules, refused)) = found? else {
            return Err(LoadError::Diagnostics(whole));
        };
        // Nothing new: the errors are all there is to say.
        if parts.is_empty() || in_use.hash == Some(rules.hash) {
            whole.refused_domains = refused;
            return Err(LoadError::Diagnostics(whole));
        }
        rules.loaded.refused_domains = refused;
        *in_use = InUse {
            parts: parts.into_iter().map(|owned| owned.part).collect(),
            hash: Some(rules.hash),
        };
        Ok(rules)
    }
}

/// Replaces the parts of each owner that has errors by its last good ones, until the whole is
/// valid. None if it cannot be.
fn isolate<P: RulesPart>(
    whole: &Report,
    parts: &mut Vec<Owned<P>>,
    good: &[Owned<P>],
    load: &mut impl FnMut(&[P], &BTreeSet<String>) -> RulesUpdate,
) -> Result<Option<(Rules, Vec<RefusedDomain>)>, LoadError> {
    let mut report = whole.clone();
    let (mut replaced, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let mut refused = Vec::new();
    for _ in 0..LOADS_MAX {
        let blamed = blamed(&report, parts);
        if blamed.is_empty() || !blamed.is_disjoint(&replaced) {
            return Ok(None);
        }
        for owner in blamed {
            let is_its = |one: &Owned<P>| one.owner == owner;
            let files = parts.iter().enumerate().filter(|(_, one)| is_its(one));
            let files = files.map(|(file, _)| file).collect();
            let last: Vec<_> = good.iter().filter(|one| is_its(one)).cloned().collect();
            kept.extend(last.iter().map(|one| one.part.name().to_owned()));
            let (Owner::Domain(name) | Owner::File(name)) = &owner;
            refused.push(RefusedDomain {
                name: name.clone(),
                is_kept: !last.is_empty(),
                why: report.of_files(&files),
            });
            replaced.insert(owner);
        }
        // All replaced ones at once: their errors have places in the parts as they were.
        parts.retain(|one| !replaced.contains(&one.owner));
        let last = good.iter().filter(|one| replaced.contains(&one.owner));
        parts.extend(last.cloned());
        parts.sort_by(|one, other| one.part.name().cmp(other.part.name()));
        let texts: Vec<_> = parts.iter().map(|one| one.part.clone()).collect();
        match load(&texts, &kept) {
            Ok(rules) => return Ok(Some((rules, refused))),
            Err(LoadError::Diagnostics(next)) if !next.only_overlay => report = next,
            // The overlay has errors beside those of the domains.
            Err(LoadError::Diagnostics(next)) => {
                let mut both = whole.clone();
                let new = next.errors.into_iter();
                both.errors
                    .extend(new.filter(|one| !whole.errors.contains(one)));
                both.only_overlay = true;
                both.refused_domains = refused;
                return Err(LoadError::Diagnostics(both));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The owners of the files with errors. Those that could not be read come alone: others may have
/// errors because a plan of theirs is not there.
fn blamed<P>(report: &Report, parts: &[Owned<P>]) -> BTreeSet<Owner> {
    let blamed = || {
        report
            .files_with_errors
            .iter()
            .filter_map(|file| parts.get(*file))
    };
    let first = blamed().filter(|one| !one.is_read || matches!(one.owner, Owner::File(_)));
    let first: BTreeSet<_> = first.map(|one| one.owner.clone()).collect();
    if first.is_empty() {
        blamed().map(|one| one.owner.clone()).collect()
    } else {
        first
    }
}

/// The parts with their owners. One without a domain, which may be empty or broken, has that of the
/// file of its name among those that were good.
fn owned<P: RulesPart>(parts: &[P], good: &[Owned<P>]) -> Vec<Owned<P>> {
    let owned = parts.iter().map(|part| {
        let (domain, is_read) = part.domain();
        let before = || good.iter().find(|one| one.part.name() == part.name());
        let owner = match domain {
            Some(domain) => Owner::Domain(domain),
            None => before().map_or_else(
                || Owner::File(part.name().to_owned()),
                |before| before.owner.clone(),
            ),
        };
        let part = part.clone();
        Owned {
            owner,
            is_read,
            part,
        }
    });
    owned.collect()
}
