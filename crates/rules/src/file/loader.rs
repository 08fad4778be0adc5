//! The state of one load: the rules so far, the reader with its diagnostics, and where nodes were
//! written.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use crate::file::diagnostic::{FilePlace, Phase};
use crate::file::limit_files::{LimitFiles, LoadedTable};
use crate::file::{Diagnostic, Fields, Grammar, Reader, RuleOrigins, Span};
use crate::patterns::Automata;
use crate::refused_domain::RefusedDomain;
use crate::requests::RequestMapping;
use crate::yaml::{Content, Node};
use tollgate_limiter::{Level, Parent, Rule, RuleSet, Values};

/// How several files are combined, and what is added to them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
    /// The file of an overlay.
    pub overlay: Option<PathBuf>,
    /// Reads the files that `limits_from` names; none where rules are no files.
    pub limit_files: Option<LimitFiles>,
    /// A domain with errors stops no other, where rules are loaded again and again.
    pub isolate_domains: bool,
}

/// The result of loading files.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings, which do not prevent the load.
    pub warnings: Vec<Diagnostic>,
    /// How many more warnings there are.
    pub warnings_omitted: usize,
    /// Where the rules were written.
    pub origins: RuleOrigins,
    /// The files of limits.
    pub tables: Vec<LoadedTable>,
    /// How descriptors are made of HTTP requests, by domain.
    pub requests: Arc<RequestMappings>,
    /// Domains whose newest files have errors, and are not in these rules.
    pub refused_domains: Vec<RefusedDomain>,
    /// The plans.
    pub plans: Arc<Plans>,
}

/// How descriptors are made of HTTP requests, by domain.
pub type RequestMappings = HashMap<String, Arc<RequestMapping>>;

/// The limits of plans by name: rules in which only what belongs to a limit is set.
pub type Plans = HashMap<String, Vec<Rule>>;

/// What the files that were walked so far hold.
pub(super) struct Loader<'s> {
    pub(super) reader: Reader<'s>,
    pub(super) options: Options,
    pub(super) rules: RuleSet,
    pub(super) origins: RuleOrigins,
    pub(super) automata: Automata,
    /// Regular expressions that are valid, so that each is checked once, and their words.
    pub(super) valid_regexes: HashMap<String, Option<Vec<Vec<u8>>>>,
    /// Where nodes were written, by their index: for what is found when all files are read.
    pub(super) nodes: Vec<NodeOrigin>,
    /// The places of the items of lists, by the index of the node.
    pub(super) items: HashMap<usize, Box<[Span]>>,
    /// The places of the names in `replaces`, in the order of the rules.
    pub(super) replaced_names: Vec<LimitFieldOrigin>,
    /// The places of the budgets that limits name, in the order of the rules.
    pub(super) budgets: Vec<LimitFieldOrigin>,
    /// The places of the limits with `rlqs`, in the order of the rules.
    pub(super) quotas: Vec<LimitFieldOrigin>,
    /// Where domains and their settings were written.
    pub(super) domains: HashMap<String, DomainOrigin>,
    /// The files of limits, in the order of the rules.
    pub(super) tables: Vec<LoadedTable>,
    /// How descriptors are made of HTTP requests, by domain.
    pub(super) requests: RequestMappings,
    /// The plans of all files.
    pub(super) plans: HashMap<String, Plan>,
    /// The plans that were read.
    pub(super) read_plans: Plans,
}

/// A plan, as it is written.
pub(super) struct Plan {
    /// The index of its file.
    pub(super) file: usize,
    pub(super) limits: Vec<Rc<Node>>,
}

/// Where the level of a node was written. There can be very many, so its path is formatted only
/// for a diagnostic.
#[derive(Clone, Debug)]
pub(super) struct NodeOrigin {
    /// The node above; none at the root of a domain.
    pub(super) parent: Option<usize>,
    pub(super) domain: Arc<str>,
    pub(super) level: Arc<Level>,
    /// The place of its values, or of its key.
    pub(super) place: FilePlace,
    /// Its index in the list of descriptors.
    pub(super) index: usize,
}

/// Where a limit has a field that is compared with other limits. The rest is in the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitFieldOrigin {
    /// The limit's node.
    pub(super) node: usize,
    pub(super) place: FilePlace,
}

/// Where a domain was written first, and its settings last.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainOrigin {
    pub(super) name: FilePlace,
    pub(super) all_or_nothing: Option<FilePlace>,
    pub(super) on_store_failure: Option<FilePlace>,
}

// === impl Loader ===

impl Loader<'_> {
    /// A load of files of this grammar.
    pub(super) fn new(grammar: &'static Grammar, options: Options) -> Self {
        Self {
            reader: Reader::new(grammar),
            options,
            rules: RuleSet::default(),
            origins: RuleOrigins::default(),
            automata: Automata::default(),
            valid_regexes: HashMap::new(),
            nodes: Vec::new(),
            items: HashMap::new(),
            replaced_names: Vec::new(),
            budgets: Vec::new(),
            quotas: Vec::new(),
            domains: HashMap::new(),
            tables: Vec::new(),
            requests: HashMap::new(),
            plans: HashMap::new(),
            read_plans: Plans::new(),
        }
    }

    /// A field of a limit of the newest node.
    pub(super) fn limit_field(&self, span: Span) -> LimitFieldOrigin {
        LimitFieldOrigin {
            node: self.nodes.len().saturating_sub(1),
            place: self.reader.place(span),
        }
    }

    /// Records where the level of a new node was written.
    pub(super) fn record_origin(
        &mut self,
        parent: Parent<'_>,
        domain: &Arc<str>,
        level: &Arc<Level>,
        fields: &Fields<'_>,
    ) {
        let field = level_field(level);
        if let Some(Content::Sequence(items)) = fields.given(field).map(|node| &node.content) {
            let items = items.iter().map(|item| item.span).collect();
            self.items.insert(self.nodes.len(), items);
        }
        self.nodes.push(NodeOrigin {
            parent: node_of(parent),
            domain: Arc::clone(domain),
            level: Arc::clone(level),
            place: self.reader.place(fields.span_of(field)),
            index: fields.path.index().unwrap_or_default(),
        });
    }

    /// The place of an item of a node's list, or else of the list.
    pub(super) fn item_span(&self, node: usize, index: usize) -> Option<Span> {
        let item = self.items.get(&node).and_then(|items| items.get(index));
        item.copied()
            .or_else(|| Some(self.nodes.get(node)?.place.span))
    }

    /// The path of a node, such as `descriptors[0].descriptors[2]`.
    pub(super) fn node_path(&self, node: usize) -> String {
        let above = |origin: &&NodeOrigin| self.nodes.get(origin.parent?);
        let levels = std::iter::successors(self.nodes.get(node), above);
        let mut indices: Vec<_> = levels
            .map(|origin| format!("descriptors[{}]", origin.index))
            .collect();
        indices.reverse();
        indices.join(".")
    }

    /// Records a diagnostic about a node, once all files are read; and the place of another one.
    pub(super) fn report_node(
        &mut self,
        node: usize,
        mut diagnostic: Diagnostic,
        other: Option<(FilePlace, &str)>,
    ) {
        let Some(file) = self.nodes.get(node).map(|origin| origin.place.file) else {
            return;
        };
        if let Some((other, label)) = other {
            diagnostic = self.reader.cite(file, diagnostic, other, label);
        }
        diagnostic.path = self.node_path(node);
        self.reader.record(file, Phase::Meaning, diagnostic);
    }
}

/// The field by which values are written.
pub(super) fn values_field(values: &Values) -> &'static str {
    match values {
        Values::Any | Values::Text(_) => "value",
        Values::List(_) => "values",
        Values::Prefixes(_) => "cidr",
        Values::Regex(_) => "regex",
    }
}

/// The field that makes a level what it is.
pub(super) fn level_field(level: &Level) -> &'static str {
    match &*level.values {
        Values::Any => "key",
        values => values_field(values),
    }
}

/// The index of a parent; none for a domain.
pub(super) fn node_of(parent: Parent<'_>) -> Option<usize> {
    match parent {
        Parent::Domain(_) => None,
        Parent::Node(node) => Some(node),
    }
}
