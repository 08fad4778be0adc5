//! Where each rule was written: its file or resource, and the entry of an overlay that matches it.

use std::collections::HashMap;
use std::sync::Arc;

/// Where the rules of a set were written, by their index. A large set has very many rules, so the
/// rules of one descriptor have one place.
#[derive(Clone, Debug, Default)]
pub struct RuleOrigins {
    /// The names of the files.
    files: Vec<Arc<str>>,
    /// In the order of the rules.
    descriptors: Vec<DescriptorOrigin>,
    /// The name of the overlay.
    overlay: Option<Arc<str>>,
    /// The line of the entry that matches a rule.
    entries: HashMap<usize, usize>,
}

/// Where the limits of one descriptor were written.
#[derive(Clone, Copy, Debug)]
struct DescriptorOrigin {
    /// The index of its first rule.
    rule: usize,
    file: u32,
    /// 0 for a resource of an xDS server.
    line: u32,
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
    /// Adds a descriptor whose limits begin with the rule of this index.
    pub(super) fn push(&mut self, rule: usize, file: usize, line: usize) {
        let number = |number: usize| u32::try_from(number).unwrap_or_default();
        self.descriptors.push(DescriptorOrigin {
            rule,
            file: number(file),
            line: number(line),
        });
    }

    /// Sets the names of the files.
    pub(super) fn name_files(&mut self, files: &[&str], overlay: Option<&str>) {
        self.files = files.iter().map(|name| Arc::from(*name)).collect();
        self.overlay = overlay.map(Arc::from);
    }

    /// Notes that the entry in this line of the overlay matches a rule.
    pub(super) fn set_entry(&mut self, rule: usize, line: usize) {
        self.entries.insert(rule, line);
    }

    /// Where the rule with this index was written.
    pub fn of(&self, rule: usize) -> Option<RuleOrigin> {
        let after = self.descriptors.partition_point(|one| one.rule <= rule);
        let descriptor = self.descriptors.get(after.checked_sub(1)?)?;
        let file = self.files.get(usize::try_from(descriptor.file).ok()?)?;
        let entry = self.overlay.as_ref().zip(self.entries.get(&rule));
        Some(RuleOrigin {
            rule: match descriptor.line {
                0 => file.to_string(),
                line => format!("{file}:{line}"),
            },
            overlay: entry.map(|(file, line)| format!("{file}:{line}")),
        })
    }
}
