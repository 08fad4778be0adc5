//! Limits files of limitador as rules files.
//!
//! limitador gets one descriptor with everything, and evaluates each limit on it. tollgate gets a
//! descriptor for each limit: its entries are those that the limit's conditions and variables read,
//! in their order. A test of an entry becomes a level that shares its bucket, and a variable a
//! level without a value. Limits whose entries have the same keys share a tree, unless a value
//! could then take the branch of another limit. Such a limit gets an entry of its own,
//! `generic_key`, in front.
//!
//! What it deliberately does not do: CEL beyond tests of entries (`expression`).

mod expression;
mod levels;
mod plan_policy;
mod source_limit;

use std::collections::{BTreeSet, HashMap, HashSet};

use self::levels::{PlacedLimits, Step};
use self::source_limit::{NOT_A_LIMITS_FILE, SourceLimit, read};
use crate::convert::rules_text::{LimitText, RulesText};
use crate::convert::{Conversion, ConvertError, Finding, document};
use tollgate_rules::path::Source;
use tollgate_rules::yaml::{Content, Node};

/// The rules of one namespace, and what is in them.
struct Domain {
    /// The number of its first limit, by which domains are in order.
    first: usize,
    namespace: String,
    placed: PlacedLimits,
    names: BTreeSet<String>,
}

/// Converts limits files. With `domain`, only the limits of that namespace. `charged_afterwards`
/// says that all of them are charged after the work (`Report`).
///
/// # Errors
///
/// When a file is neither a list of limits nor a `PlanPolicy`.
pub fn convert(
    sources: &[Source],
    domain: Option<&str>,
    charged_afterwards: bool,
) -> Result<Conversion, ConvertError> {
    let mut findings = Vec::new();
    let mut documents = Vec::new();
    for source in sources {
        documents.push((source, document(&source.name, &source.text)?));
    }
    let mut domains: HashMap<String, Domain> = HashMap::new();
    let mut seen = HashSet::new();
    let mut policies = Vec::new();
    let mut number: usize = 0;
    for (source, root) in &documents {
        let Some(root) = root.as_deref().filter(|root| !root.is_null()) else {
            continue;
        };
        if plan_policy::add(&source.name, root, domain, &mut policies, &mut findings) {
            continue;
        }
        let Content::Sequence(items) = &root.content else {
            let message = "this is not a limits file of limitador";
            let help = manifest_help(root).unwrap_or(NOT_A_LIMITS_FILE);
            let finding = Finding::gap(&source.name, root.span, message, help);
            return Err(ConvertError::Input(finding));
        };
        for item in items {
            number = number.saturating_add(1);
            let namespace = item.field("namespace").and_then(Node::text);
            if domain.is_some_and(|domain| namespace != Some(domain)) {
                continue;
            }
            match read(
                &source.name,
                item,
                number,
                charged_afterwards,
                &mut findings,
            ) {
                Ok(Some(limit)) if seen.insert(limit.identity()) => {
                    let domain = domains.entry(limit.namespace.clone());
                    let domain = domain.or_insert_with(|| Domain::of_first(&limit));
                    domain.place(&limit, &mut findings);
                }
                Ok(Some(limit)) => findings.push(limit.duplicate()),
                Ok(None) => {}
                Err(finding) => findings.push(finding),
            }
        }
    }
    let mut domains: Vec<_> = domains.into_values().collect();
    domains.sort_by_key(|domain| domain.first);
    let rules = domains.into_iter().map(Domain::text).chain(policies);
    let rules = rules.collect();
    Conversion::checked(rules, findings)
}

/// What to do with a manifest of Kubernetes that holds limits.
fn manifest_help(root: &Node) -> Option<&'static str> {
    match root.field("kind").and_then(Node::text)? {
        "Limitador" => Some("save the list `spec.limits` of this resource as a file"),
        "ConfigMap" => Some("save the text of the ConfigMap's entry, a list of limits, as a file"),
        "RateLimitPolicy" => Some("write it as rules: docs/guides/from-limitador.md"),
        _ => None,
    }
}

// === impl Domain ===

impl Domain {
    fn of_first(limit: &SourceLimit<'_>) -> Self {
        Self {
            first: limit.number,
            namespace: limit.namespace.clone(),
            placed: PlacedLimits::default(),
            names: BTreeSet::new(),
        }
    }

    fn text(self) -> RulesText {
        let comments = [
            "Converted from limitador by `tollgate convert --from limitador`.",
            "Envoy sends one descriptor for each list of keys; `tollgate convert --envoy` prints the actions.",
            "Windows begin at the full minute, hour or day, not with the first hit.",
        ];
        RulesText {
            comments: comments.map(str::to_owned).to_vec(),
            domain: self.namespace,
            descriptors: self.placed.levels(),
        }
    }

    /// Adds a limit.
    fn place(&mut self, limit: &SourceLimit<'_>, findings: &mut Vec<Finding>) {
        let name = self.unique_name(limit);
        let mut steps = limit.steps.clone();
        if steps.is_empty() || !self.placed.has_place_for(&steps) {
            // Envoy sends it, so it has no pattern's sign.
            let own = if name.contains('*') {
                format!("limit_{}", limit.number)
            } else {
                name.clone()
            };
            if !steps.is_empty() {
                let message = format!(
                    "limit {} gets the entry generic_key={own} in front, since another limit has the same keys with other values",
                    limit.number
                );
                let help = "send it from Envoy: tollgate convert --envoy prints the actions";
                findings.push(Finding::note(limit.file, limit.node.span, message, help));
            }
            steps.insert(0, Step::of_limit(&own));
        }
        let limit = LimitText {
            name,
            ..limit.limit.clone()
        };
        self.placed.add(&steps, limit);
    }

    /// The limit's name, or one by its number if it has none or another limit has it.
    fn unique_name(&mut self, limit: &SourceLimit<'_>) -> String {
        let mut name = limit.limit.name.clone();
        if name.is_empty() {
            name = format!("limit_{}", limit.number);
        }
        while !self.names.insert(name.clone()) {
            name = format!("{name}_{}", limit.number);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::rules_text::comparisons::COUNT;

    /// How often values are compared to convert so many limits that are all apart.
    fn comparisons(limits: usize) -> usize {
        let limit = |number: usize| {
            let path = format!("descriptors[0].path == '/{number}'");
            format!(
                "- {{ namespace: shop, max_value: 5, seconds: 60, conditions: [\"{path}\"] }}\n"
            )
        };
        let source = Source {
            name: "limits.yaml".to_owned(),
            text: (0..limits).map(limit).collect(),
        };
        COUNT.set(0);
        let conversion = convert(&[source], None, false).unwrap();
        assert!(conversion.findings.is_empty(), "{:?}", conversion.findings);
        COUNT.get()
    }

    #[test]
    fn policies_of_one_domain_become_one_file_with_each_tier_once() {
        let policy = |file: &str, tiers: [&str; 2]| {
            let plan = |tier| format!("{{ tier: {tier}, limits: {{ daily: 5 }} }}");
            let plans = tiers.map(plan).join(", ");
            Source {
                name: file.to_owned(),
                text: format!("{{ kind: PlanPolicy, spec: {{ plans: [{plans}] }} }}\n"),
            }
        };
        let sources = [
            policy("a.yaml", ["gold", "silver"]),
            policy("b.yaml", ["bronze", "gold"]),
        ];
        let conversion = convert(&sources, Some("shop"), false).unwrap();
        let [rules] = conversion.rules.as_slice() else {
            panic!("{conversion:?}");
        };
        for tier in ["gold", "silver", "bronze"] {
            let lines = rules.text.matches(&format!("    plan: {tier}\n")).count();
            assert_eq!(lines, 1, "{tier}: {}", rules.text);
        }
        let gaps: Vec<_> = conversion
            .findings
            .iter()
            .filter(|finding| finding.severity == crate::convert::Severity::Gap)
            .map(|finding| finding.file.as_str())
            .collect();
        assert_eq!(gaps, ["b.yaml"], "{:?}", conversion.findings);
    }

    /// A comparison with all limits before would be 79,800. The hash table compares a few more
    /// values in some runs, because its hash keys are random.
    #[test]
    fn a_limit_is_placed_without_comparing_it_with_all_others() {
        let compared = comparisons(400);
        assert!(compared <= 400 * 8, "{compared}");
    }
}
