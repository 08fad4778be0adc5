//! Where each rule was written: its file or resource, and the entry of an overlay that matches it.

use std::sync::Arc;

/// Where the rules of a set were written, by their index. A large set has very many, so a place is
/// three numbers.
#[derive(Clone, Debug, Default)]
pub struct RuleOrigins {
    /// The names of the files, the overlay's last.
    files: Vec<Arc<str>>,
    overlay: Option<Arc<str>>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    file: u32,
    /// 0 for a resource of an xDS server.
    line: u32,
    /// 0 when no entry matches.
    overlay_line: u32,
}

/// Where one rule was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleOrigin {
    /// `FILE:LINE`, or the name of a resource.
    pub rule: String,
    /// `FILE:LINE` of the overlay's entry.
    pub overlay: Option<String>,
}

// === impl RuleOrigins ===

impl RuleOrigins {
    /// Adds the next rule.
    pub(super) fn push(&mut self, file: usize, line: usize) {
        let number = |number: usize| u32::try_from(number).unwrap_or_default();
        self.places.push(Place {
            file: number(file),
            line: number(line),
            overlay_line: 0,
        });
    }

    /// Sets the names of the files.
    pub(super) fn name_files(&mut self, files: &[&str], overlay: Option<&str>) {
        self.files = files.iter().map(|name| Arc::from(*name)).collect();
        self.overlay = overlay.map(Arc::from);
    }

    /// Notes that the entry in this line of the overlay matches a rule.
    pub(super) fn set_overlay(&mut self, rule: usize, line: usize) {
        if let Some(place) = self.places.get_mut(rule) {
            place.overlay_line = u32::try_from(line).unwrap_or_default();
        }
    }

    /// Where the rule with this index was written.
    pub fn of(&self, rule: usize) -> Option<RuleOrigin> {
        let place = self.places.get(rule)?;
        let file = self.files.get(usize::try_from(place.file).ok()?)?;
        let rule = match place.line {
            0 => file.to_string(),
            line => format!("{file}:{line}"),
        };
        let overlay = self.overlay.as_ref().filter(|_| place.overlay_line > 0);
        let overlay = overlay.map(|file| format!("{file}:{}", place.overlay_line));
        Some(RuleOrigin { rule, overlay })
    }
}
