//! Lines of the statsd protocol: `name:5|c` for a counter, `name:7|g` for a gauge.
//!
//! Tags use the reference's dialect: `.__name=value` after the name. Servers without tags take them
//! for a part of it.
//!
//! What it deliberately does not do: sanitise more than the line format needs. Names arrive
//! sanitised (`metrics`).

use std::fmt::Write as _;

use crate::metrics::DeltaKind;

/// Lines, each with its line end.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    text: String,
    count: usize,
    /// Tags, appended to every name.
    tags: String,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn new(tags: &[(String, String)]) -> Self {
        Self {
            tags: tags
                .iter()
                .map(|(name, value)| sanitize(&format!(".__{name}={value}")))
                .collect(),
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, name: &str, kind: DeltaKind, value: u64) {
        let kind = match kind {
            DeltaKind::Counter => 'c',
            DeltaKind::Gauge => 'g',
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{}{}:{value}|{kind}", sanitize(name), self.tags);
        self.count = self.count.saturating_add(1);
    }

    /// Removes all lines; the tags stay.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.count = 0;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Datagrams of whole lines, each no longer than `bytes_max`; a longer line is a datagram of
    /// its own.
    pub(crate) fn datagrams(&self, bytes_max: usize) -> impl Iterator<Item = &str> {
        let mut rest = self.text.as_str();
        std::iter::from_fn(move || {
            let first = rest.find('\n')?.saturating_add(1);
            let window = rest.as_bytes().get(..bytes_max.min(rest.len()))?;
            let last = window.iter().rposition(|byte| *byte == b'\n');
            let end = last.map_or(first, |at| at.saturating_add(1));
            let (part, after) = rest.split_at_checked(end)?;
            rest = after;
            Some(part)
        })
    }
}

/// Replaces characters that would end a name or a line.
fn sanitize(name: &str) -> String {
    name.replace(
        |c: char| c.is_control() || [':', '|', '@'].contains(&c),
        "_",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_name_tags_value_and_kind() {
        let tags = [("env", "a|b"), ("zone", "eu:1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut lines = Lines::new(&tags);
        lines.push("a.b", DeltaKind::Counter, 5);
        lines.push("c\nd:1|c", DeltaKind::Gauge, 7);
        assert_eq!(
            lines.text(),
            "a.b.__env=a_b.__zone=eu_1:5|c\nc_d_1_c.__env=a_b.__zone=eu_1:7|g\n"
        );
        lines.clear();
        assert_eq!((lines.text(), lines.count()), ("", 0));
    }

    #[test]
    fn datagrams_hold_whole_lines() {
        let mut lines = Lines::default();
        for number in 0..10 {
            lines.push("abc", DeltaKind::Counter, number);
        }
        lines.push(&"x".repeat(40), DeltaKind::Counter, 1);
        lines.push("end", DeltaKind::Counter, 1);
        let parts: Vec<&str> = lines.datagrams(20).collect();
        assert_eq!(parts.concat(), lines.text());
        assert!(parts.iter().all(|part| part.ends_with('\n')));
        let long = parts.iter().filter(|part| part.len() > 20).count();
        assert_eq!((parts.len(), long), (7, 1), "{parts:?}");
    }
}
