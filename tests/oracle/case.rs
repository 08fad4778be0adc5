//! One test case: a rules file and the requests that are sent to it, one after another.
//!
//! A case is data, so a failure can be shrunk by leaving parts of it out. The text of its rules
//! file depends on the case alone: `spelling` seeds the choice between the ways in which YAML can
//! say the same thing.
//!
//! What it deliberately does not do: choose (`generator`), or know what either service makes of it
//! (`model`).

use std::fmt::Write as _;

use tollgate_test_support::grpc_client::{Descriptor, Entry, RateLimitOverride, RateLimitRequest};
use tollgate_test_support::seeded_rng::SeededRng;

/// The units by their number in Envoy's protocol; the last is week.
pub(crate) const UNITS: [(&str, u64); 8] = [
    ("unknown", 1),
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("month", 2_592_000),
    ("year", 31_536_000),
    ("week", 604_800),
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The seed that drew it.
    pub(crate) seed: u64,
    pub(crate) spelling: u64,
    /// The end of the domain's name; the driver puts a number before it, so that cases can share a
    /// service.
    pub(crate) domain: &'static str,
    /// Raw lines at the top level of the rules file.
    pub(crate) extra: Vec<&'static str>,
    pub(crate) descriptors: Vec<Node>,
    pub(crate) requests: Vec<OracleRequest>,
}

/// A descriptor of the rules file.
#[allow(clippy::struct_excessive_bools)] // each is a field of the grammar
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub(crate) key: String,
    /// Empty if there is none.
    pub(crate) value: String,
    pub(crate) limit: Option<Limit>,
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    pub(crate) detailed_metric: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) share_threshold: bool,
    /// Raw lines; one that begins with a field's name replaces that field.
    pub(crate) extra: Vec<&'static str>,
    pub(crate) children: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limit {
    /// Its number in Envoy's protocol; not written if the limit is `unlimited`.
    pub(crate) unit: usize,
    pub(crate) requests_per_unit: u32,
    pub(crate) unlimited: bool,
    /// Empty if there is none.
    pub(crate) name: &'static str,
    pub(crate) replaces: Vec<&'static str>,
    /// As in [`Node`].
    pub(crate) extra: Vec<&'static str>,
}

/// Labels of metrics are cut at this length here.
pub(crate) const LABEL_BYTES_MAX: usize = 128;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OracleRequest {
    pub(crate) domain: Domain,
    pub(crate) hits_addend: u32,
    pub(crate) descriptors: Vec<OracleDescriptor>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Domain {
    /// The case's own.
    Own,
    Unknown,
    Empty,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OracleDescriptor {
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) hits: Option<u64>,
    pub(crate) negative: bool,
    /// A limit in the request: requests per unit, the unit's number.
    pub(crate) limit: Option<(u32, usize)>,
}

/// Writes a rules file.
struct Writer {
    text: String,
    chance: SeededRng,
}

// === impl Case ===

impl Case {
    /// The rules file, for this domain.
    pub(crate) fn yaml(&self, domain: &str) -> String {
        let mut writer = Writer {
            text: String::new(),
            chance: SeededRng::of_seed(self.spelling),
        };
        let replaced = |field: &str| replaces_field(&self.extra, field);
        if writer.chance.once_in(6) {
            writer.text += "# rules\n";
        }
        if !replaced("domain") {
            let domain = writer.scalar(domain);
            let _ = writeln!(writer.text, "domain: {domain}");
        }
        for line in &self.extra {
            let _ = writeln!(writer.text, "{line}");
        }
        if !replaced("descriptors") {
            writer.nodes(&self.descriptors, 0);
        }
        writer.text
    }

    pub(crate) fn domain(&self, number: usize) -> String {
        format!("{number}-{}", self.domain)
    }

    /// A request, for this domain.
    pub(crate) fn request(asked: &OracleRequest, domain: &str) -> RateLimitRequest {
        let domain = match asked.domain {
            Domain::Own => domain,
            Domain::Unknown => "stranger",
            Domain::Empty => "",
        };
        let descriptors = asked.descriptors.iter().map(|asked| Descriptor {
            entries: asked
                .entries
                .iter()
                .map(|(key, value)| Entry {
                    key: key.clone().into(),
                    value: value.clone().into(),
                })
                .collect(),
            limit: asked
                .limit
                .map(|(requests_per_unit, unit)| RateLimitOverride {
                    requests_per_unit,
                    unit: i32::try_from(unit).unwrap(),
                    ..Default::default()
                }),
            hits_addend: asked.hits,
            is_negative_hits: asked.negative,
        });
        RateLimitRequest {
            domain: domain.to_owned().into(),
            descriptors: descriptors.collect(),
            hits_addend: asked.hits_addend,
        }
    }

    /// Every descriptor of the rules file.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        fn walk<'c>(nodes: &'c [Node], all: &mut Vec<&'c Node>) {
            for node in nodes {
                all.push(node);
                walk(&node.children, all);
            }
        }
        let mut all = Vec::new();
        walk(&self.descriptors, &mut all);
        all
    }
}

fn replaces_field(extra: &[&str], field: &str) -> bool {
    extra
        .iter()
        .any(|line| line.split(':').next() == Some(field))
}

// === impl Writer ===

impl Writer {
    /// A text that is not empty, in one of YAML's ways to write it.
    fn scalar(&mut self, text: &str) -> String {
        let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-/.".contains(c))
            && !["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
                .contains(&text.to_lowercase().as_str());
        match self.chance.below(if plain { 4 } else { 2 }) {
            0 => format!("'{}'", text.replace('\'', "''")),
            1 => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            _ => text.to_owned(),
        }
    }

    fn number(&mut self, number: u32) -> String {
        match self.chance.below(8) {
            0 => format!("{number:#x}"),
            1 if number > 0 => format!("0{number:o}"),
            2 if number >= 1_000 => format!("{}_{:03}", number / 1_000, number % 1_000),
            _ => number.to_string(),
        }
    }

    fn truth(&mut self) -> &'static str {
        self.chance.pick(&["true", "true", "True", "yes", "on"])
    }

    fn nodes(&mut self, nodes: &[Node], depth: usize) {
        let indent = "  ".repeat(depth);
        if nodes.is_empty() {
            if self.chance.once_in(3) {
                let _ = writeln!(self.text, "{indent}descriptors: []");
            }
            return;
        }
        let _ = writeln!(self.text, "{indent}descriptors:");
        for node in nodes {
            let mut fields = self.fields(node);
            let first = fields.remove(0);
            let _ = writeln!(self.text, "{indent}- {first}");
            for field in fields {
                let _ = writeln!(self.text, "{indent}  {field}");
            }
            if !replaces_field(&node.extra, "descriptors") {
                self.nodes(&node.children, depth + 1);
            }
        }
    }

    fn fields(&mut self, node: &Node) -> Vec<String> {
        let mut fields = Vec::new();
        let replaced = |field: &str| replaces_field(&node.extra, field);
        if !replaced("key") {
            fields.push(format!("key: {}", self.scalar(&node.key)));
        }
        if !node.value.is_empty() && !replaced("value") {
            fields.push(format!("value: {}", self.scalar(&node.value)));
        }
        for (name, set) in [
            ("shadow_mode", node.shadow_mode),
            ("quota_mode", node.quota_mode),
            ("detailed_metric", node.detailed_metric),
            ("value_to_metric", node.value_to_metric),
            ("share_threshold", node.share_threshold),
        ] {
            if replaced(name) {
                continue;
            }
            if set {
                fields.push(format!("{name}: {}", self.truth()));
            } else if self.chance.once_in(20) {
                fields.push(format!(
                    "{name}: {}",
                    self.chance.pick(&["false", "no", ""])
                ));
            }
        }
        if let Some(limit) = &node.limit
            && !replaced("rate_limit")
        {
            fields.push(format!("rate_limit: {{{}}}", self.limit(limit)));
        }
        fields.extend(node.extra.iter().map(ToString::to_string));
        // The first field follows the dash; any field may be first.
        let first = self.chance.position(fields.len());
        fields.rotate_left(first);
        fields
    }

    fn limit(&mut self, limit: &Limit) -> String {
        let mut fields = Vec::new();
        let replaced = |field: &str| replaces_field(&limit.extra, field);
        if !limit.unlimited && !replaced("unit") {
            let unit = UNITS[limit.unit].0;
            let unit = match self.chance.below(6) {
                0 => unit.to_uppercase(),
                1 => unit[..1].to_uppercase() + &unit[1..],
                _ => unit.to_owned(),
            };
            fields.push(format!("unit: {unit}"));
        }
        if !replaced("requests_per_unit") && (limit.requests_per_unit > 0 || self.chance.once_in(2))
        {
            fields.push(format!(
                "requests_per_unit: {}",
                self.number(limit.requests_per_unit)
            ));
        }
        if limit.unlimited && !replaced("unlimited") {
            fields.push(format!("unlimited: {}", self.truth()));
        }
        if !limit.name.is_empty() && !replaced("name") {
            fields.push(format!("name: {}", self.scalar(limit.name)));
        }
        if !limit.replaces.is_empty() && !replaced("replaces") {
            let names = limit
                .replaces
                .iter()
                .map(|name| format!("{{name: {name}}}"));
            let names: Vec<_> = names.collect();
            fields.push(format!("replaces: [{}]", names.join(", ")));
        }
        fields.extend(limit.extra.iter().map(ToString::to_string));
        fields.join(", ")
    }
}
