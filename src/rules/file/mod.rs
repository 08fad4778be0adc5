//! Rules files: YAML text in, a [`RuleSet`] or every problem out.
//!
//! The grammar is that of Envoy's reference service, and so is the first line of each message; then come file, line and
//! column, the path of the rule, and what to do. A right name in a wrong place, which the reference ignores in silence,
//! is a warning. One bad file refuses them all: a rule set is taken whole or not at all.
//!
//! Each file is walked once. A problem is noted and the walk goes on, so that one run shows them all. Aliases are walked
//! as often as they are used, against a budget of nodes and bytes that grows with the file, so a file that unfolds costs
//! no more than its size allows. No message quotes more than a few words of it.
//!
//! What it deliberately does not do: read files (`rules_path`), or compare rules of different domains.

mod diagnostic;
mod fields;
mod grammar;
mod metadata;
mod over_limit;
mod rate_limit;
mod schema;
mod values;

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use self::diagnostic::FieldPath;
use self::fields::Fields;
use self::values::PatternOrigin;
use crate::rules::excerpt::excerpt;
use crate::rules::path::Source;
use crate::rules::patterns::Automata;
use crate::rules::yaml::{self, Node};
use tollgate_limiter::{AddNodeError, Level, OnStoreFailure, Parent, Rule, RuleSet, Values};

pub use self::diagnostic::{Diagnostic, Position};
pub use self::schema::schema;
pub use self::values::LIST_ITEMS_MAX;

/// How many problems, and how many warnings, are reported in one run.
pub const DIAGNOSTICS_MAX: usize = 100;

/// How many levels of descriptors a file may nest.
pub const LEVELS_MAX: usize = 24;

/// How long a domain, key, value or name may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// How much is walked for each byte of a file, aliases unfolded, and how much at least. A byte of text counts 1.
const UNFOLDING_PER_BYTE: usize = 16;
const UNFOLDING_MIN: usize = 100_000;

/// What a node counts, its text aside.
const UNFOLDING_OF_A_NODE: usize = 4;

/// How files go together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
}

/// What files came to.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// What is worth a look.
    pub warnings: Vec<Diagnostic>,
}

/// The rule set that `sources` describe.
///
/// # Errors
///
/// Every problem of every file, at most [`DIAGNOSTICS_MAX`].
pub fn load(sources: &[Source], options: Options) -> Result<LoadedRules, Vec<Diagnostic>> {
    let mut loader = Loader::new(options);
    for source in sources {
        let walked = source.text.len().saturating_mul(UNFOLDING_PER_BYTE);
        let budget = walked.max(UNFOLDING_MIN);
        loader.file(&source.name, budget, |loader| loader.load(&source.text));
    }
    loader.done()
}

/// The same for documents that are no text, each with what it is called. They have no aliases, so nothing unfolds.
pub(crate) fn load_documents(
    documents: &[(String, Node)],
    options: Options,
) -> Result<LoadedRules, Vec<Diagnostic>> {
    let mut loader = Loader::new(options);
    for (name, root) in documents {
        loader.file(name, usize::MAX, |loader| loader.document(root));
    }
    loader.done()
}

/// In which of its passes over a file the reference finds a problem. It stops at the first pass that finds one; here the
/// problems of earlier passes come first, so that the first line is the same.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Phase {
    /// Names, and values that no name may have.
    Names,
    /// Types.
    Types,
    /// What it all means.
    Meaning,
}

/// The walk's state.
struct Loader<'s> {
    options: Options,
    rules: RuleSet,
    errors: Vec<(Phase, Diagnostic)>,
    warnings: Vec<Diagnostic>,
    /// The file being walked.
    file: &'s str,
    /// How much more of it may be walked; none when it was more than there is.
    unfolding_left: Option<usize>,
    automata: Automata,
    /// Regular expressions found good, so that each is looked at once.
    good_regexes: HashSet<String>,
    /// Where patterns stand, in the order of their nodes.
    origins: Vec<PatternOrigin>,
}

/// Where descriptors are to be added.
#[derive(Clone, Copy)]
struct DescriptorContext<'b> {
    domain: &'b Arc<str>,
    /// None when what they would hang on is itself wrong; then they are only checked.
    parent: Option<Parent<'b>>,
    levels: &'b [Arc<Level>],
    /// The key by which slots of the level above are held.
    holder_key: Option<&'b str>,
}

// === impl Loader ===

impl<'s> Loader<'s> {
    fn new(options: Options) -> Self {
        Self {
            options,
            rules: RuleSet::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
            file: "",
            unfolding_left: None,
            automata: Automata::default(),
            good_regexes: HashSet::new(),
            origins: Vec::new(),
        }
    }

    /// Takes one file in; what is wrong with it is told in the reference's order.
    fn file<'f>(&mut self, name: &'f str, budget: usize, load: impl FnOnce(&mut Self))
    where
        'f: 's,
    {
        self.file = name;
        self.unfolding_left = Some(budget);
        let before = self.errors.len();
        load(self);
        if let Some(new) = self.errors.get_mut(before..) {
            new.sort_by_key(|(phase, _)| *phase);
        }
    }

    /// What all files came to.
    fn done(mut self) -> Result<LoadedRules, Vec<Diagnostic>> {
        self.compile();
        if self.errors.is_empty() {
            Ok(LoadedRules {
                rules: self.rules,
                warnings: self.warnings,
            })
        } else {
            let problems = self.errors.into_iter();
            Err(problems.map(|(_, problem)| problem).collect())
        }
    }

    fn load(&mut self, text: &str) {
        let path = FieldPath::ROOT;
        match yaml::parse(text) {
            Ok(Some(root)) if !root.is_null() => self.document(&root),
            Ok(_) => self.empty_domain(Position { line: 1, column: 1 }, &path),
            Err(error) => {
                let message = format!(
                    "error loading config file: yaml: {}",
                    excerpt(&error.message)
                );
                self.error(error.at, &path, message, "mend the YAML at this place");
            }
        }
    }

    fn document(&mut self, root: &Node) {
        let path = FieldPath::ROOT;
        let Some(fields) = self.fields(root, &path, &grammar::ROOT) else {
            return;
        };
        let domain = self.text(&fields, &path, "domain");
        let usable =
            !domain.is_empty() && self.check_length(domain, fields.position_of("domain"), &path);
        if domain.is_empty() {
            self.empty_domain(fields.at, &path);
        } else if usable && !self.rules.add_domain(domain) && !self.options.merge_domains {
            self.error(
                fields.position_of("domain"),
                &path,
                format!("duplicate domain '{}' in config file", excerpt(domain)),
                "keep all rules of a domain in one file, or set MERGE_DOMAIN_CONFIG=true",
            );
            return;
        }
        if fields.given("all_or_nothing").is_some() {
            let whole = self.boolean(&fields, &path, "all_or_nothing");
            if self.rules.all_or_nothing(domain.as_bytes()) == Some(!whole) {
                let message = format!(
                    "all_or_nothing is {} in an earlier file of this domain, and {whole} here",
                    !whole
                );
                let at = fields.position_of("all_or_nothing");
                self.error(at, &path, message, "say it once, or the same in each file");
            }
            self.rules.set_all_or_nothing(domain, whole);
        }
        self.on_store_failure(&fields, &path, domain);
        let context = DescriptorContext {
            domain: &Arc::from(domain),
            parent: usable.then_some(Parent::Domain(domain)),
            levels: &[],
            holder_key: None,
        };
        self.descriptors(&fields, &path, context);
    }

    fn on_store_failure(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, domain: &str) {
        let name = self.text(fields, path, "on_store_failure");
        if name.is_empty() {
            return;
        }
        let at = fields.position_of("on_store_failure");
        let Some(answer) = OnStoreFailure::from_name(name) else {
            let message = format!("unknown on_store_failure '{}'", excerpt(name));
            let names = OnStoreFailure::ALL.map(OnStoreFailure::name).join(", ");
            self.error(at, path, message, &format!("use one of {names}"));
            return;
        };
        let earlier = self.rules.on_store_failure(domain.as_bytes());
        if let Some(earlier) = earlier.filter(|earlier| *earlier != answer) {
            let message = format!(
                "on_store_failure is {} in an earlier file of this domain, and {name} here",
                earlier.name()
            );
            self.error(at, path, message, "say it once, or the same in each file");
        }
        self.rules.set_on_store_failure(domain, answer);
    }

    fn empty_domain(&mut self, at: Position, path: &FieldPath<'_>) {
        self.error(
            at,
            path,
            "config file cannot have empty domain".to_owned(),
            "add `domain: NAME`, the domain that Envoy's rate limit filter names",
        );
    }

    fn descriptors(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        context: DescriptorContext<'_>,
    ) {
        let advice = "write each descriptor as a list item: `- key: …`";
        let items = self.items(fields, path, "descriptors", advice);
        if context.levels.len() >= LEVELS_MAX && !items.is_empty() {
            let message = format!("descriptors nest deeper than {LEVELS_MAX} levels");
            return self.error(fields.at, path, message, "use fewer levels");
        }
        for (position, item) in items.iter().enumerate() {
            if self.errors.len() >= DIAGNOSTICS_MAX {
                return;
            }
            self.descriptor(item, &path.item("descriptors", position), context);
        }
    }

    fn descriptor(&mut self, node: &Node, path: &FieldPath<'_>, context: DescriptorContext<'_>) {
        let Some(fields) = self.fields(node, path, &grammar::DESCRIPTOR) else {
            return;
        };
        let key = self.text(&fields, path, "key");
        let values = self.values(&fields, path, key);
        let share_threshold = self.boolean(&fields, path, "share_threshold");
        let ipv6_prefix = self.ipv6_prefix(&fields, path, values.as_ref(), share_threshold);
        let values_usable = values.is_some();
        let level = Level {
            key: key.to_owned(),
            values: values.unwrap_or_default().into(),
            ipv6_prefix,
            share_threshold,
            value_to_metric: self.boolean(&fields, path, "value_to_metric"),
        };
        if level.key.is_empty() {
            self.error(
                fields.at,
                path,
                "descriptor has empty key".to_owned(),
                "add `key: NAME`, the descriptor key that Envoy sends",
            );
        }
        let usable = !level.key.is_empty()
            && self.check_length(&level.key, fields.position_of("key"), path)
            && values_usable;
        self.warn_unreachable(&fields, path, &level.key, context.holder_key);
        let mut levels = context.levels.to_vec();
        levels.push(Arc::new(level));
        let node = context
            .parent
            .filter(|_| usable)
            .and_then(|parent| self.add_node(&fields, path, context.domain, &levels, parent));

        let mut rule = Rule::new(Arc::clone(context.domain), levels.clone());
        rule.shadow_mode = self.boolean(&fields, path, "shadow_mode");
        rule.quota_mode = self.boolean(&fields, path, "quota_mode");
        rule.detailed_metric = self.boolean(&fields, path, "detailed_metric");
        rule.over_limit = self.over_limit(&fields, path);
        let mut rules = self.rate_limits(&fields, path, &rule);
        if values_usable {
            self.share_threshold(&fields, path, &levels);
        }
        let metadata = self.metadata(&fields, path);
        if let Some(first) = rules.first_mut() {
            first.metadata = metadata;
        }
        let holder_key = rules.iter().find_map(|rule| rule.holder_key.clone());
        self.warn_unused_over_limit(&fields, path, &rules);
        if let Some(node) = node {
            self.rules.set_rules(node, rules);
        }
        let context = DescriptorContext {
            parent: node.map(Parent::Node),
            levels: &levels,
            holder_key: holder_key.as_deref(),
            ..context
        };
        self.descriptors(&fields, path, context);
    }

    /// Warns of a level that is asked for nobody: what would reach it says who holds a slot of the level above.
    fn warn_unreachable(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        key: &str,
        holder_key: Option<&str>,
    ) {
        let limited = ["rate_limit", "rate_limits"];
        let limited = limited.iter().any(|name| fields.given(name).is_some());
        if holder_key == Some(key) && (limited || fields.given("descriptors").is_none()) {
            let message = format!(
                "'{}' is the holder_key of the level above: as a last entry it says who holds a slot there, and what is configured here never applies",
                excerpt(key)
            );
            let advice = "give one of them another key, or remove this descriptor's limit";
            self.warning(fields.position_of("key"), path, message, advice);
        }
    }

    fn add_node(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        domain: &str,
        levels: &[Arc<Level>],
        parent: Parent<'_>,
    ) -> Option<usize> {
        let level = levels.last()?;
        let error = match self.rules.add_node(parent, Arc::clone(level)) {
            Ok(node) => {
                self.record_origin(node, level, fields, path);
                return Some(node);
            }
            Err(error) => error,
        };
        match (&*level.values, error) {
            (Values::Any | Values::Text(_), _) => {
                let name = Rule::new(domain, levels.to_vec()).full_name();
                self.error(
                    fields.position_of("key"),
                    path,
                    format!("duplicate descriptor composite key '{}'", excerpt(&name)),
                    "join the two into one descriptor, or give one another value",
                );
            }
            // That has been said.
            (_, AddNodeError::WildcardKey) => {}
            (_, error) => self.duplicate_values(fields, path, level, error),
        }
        None
    }

    fn share_threshold(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        levels: &[Arc<Level>],
    ) {
        let Some(level) = levels.last() else {
            return;
        };
        if level.share_threshold && !level.key.contains('*') && !level.values.match_many() {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{}'",
                excerpt(&level.label())
            );
            let advice = "remove share_threshold, or say which values share: a pattern such as `files/*`, `values`, `cidr` or `regex`";
            self.error(fields.position_of("share_threshold"), path, message, advice);
        }
    }

    /// Takes nodes and their texts off the budget; when it is used up says so, once.
    fn spend<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n Rc<Node>>,
        at: Position,
        path: &FieldPath<'_>,
    ) -> bool {
        let Some(left) = self.unfolding_left else {
            return false;
        };
        self.unfolding_left = nodes.into_iter().try_fold(left, |left, node| {
            let text = node.text().map_or(0, str::len);
            left.checked_sub(UNFOLDING_OF_A_NODE)?.checked_sub(text)
        });
        if self.unfolding_left.is_none() {
            let message =
                format!("aliases unfold to more than {UNFOLDING_PER_BYTE} times the file");
            self.error(at, path, message, "use fewer aliases within aliases");
        }
        self.unfolding_left.is_some()
    }

    /// Whether a text keeps its bound; if not, says so.
    fn check_length(&mut self, text: &str, at: Position, path: &FieldPath<'_>) -> bool {
        let short = text.len() <= TEXT_BYTES_MAX;
        if !short {
            let message = format!("a text is longer than {TEXT_BYTES_MAX} bytes");
            self.error(at, path, message, "shorten it");
        }
        short
    }

    fn error(&mut self, at: Position, path: &FieldPath<'_>, message: String, advice: &str) {
        self.error_in(Phase::Meaning, at, path, message, advice);
    }

    fn error_in(
        &mut self,
        phase: Phase,
        at: Position,
        path: &FieldPath<'_>,
        message: String,
        advice: &str,
    ) {
        if self.errors.len() < DIAGNOSTICS_MAX {
            let problem = self.diagnostic(at, path, message, advice);
            self.errors.push((phase, problem));
        }
    }

    /// A problem found when the files are read already.
    fn error_at(&mut self, origin: PatternOrigin, message: String, advice: &str) {
        if self.errors.len() < DIAGNOSTICS_MAX {
            let problem = Diagnostic {
                file: origin.file,
                at: origin.at,
                message,
                path: origin.path,
                advice: advice.to_owned(),
            };
            self.errors.push((Phase::Meaning, problem));
        }
    }

    fn warning(&mut self, at: Position, path: &FieldPath<'_>, message: String, advice: &str) {
        if self.warnings.len() < DIAGNOSTICS_MAX {
            let warning = self.diagnostic(at, path, message, advice);
            self.warnings.push(warning);
        }
    }

    fn diagnostic(
        &self,
        at: Position,
        path: &FieldPath<'_>,
        message: String,
        advice: &str,
    ) -> Diagnostic {
        Diagnostic {
            file: self.file.to_owned(),
            at,
            message,
            path: path.to_string(),
            advice: advice.to_owned(),
        }
    }
}
