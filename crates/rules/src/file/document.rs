//! The root of a rules file: its domain, the settings of the domain, and its descriptors.

use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::descriptor::DescriptorContext;
use crate::file::diagnostic::{Diagnostic, Phase, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::foreign_format::{self, ForeignFormat};
use crate::file::grammar;
use crate::file::loader::{DomainOrigin, Loader};
use crate::yaml::{Content, Document, Node};
use tollgate_limiter::{OnStoreFailure, Parent};

// === impl Loader ===

impl Loader<'_> {
    /// Parses a text and loads its document.
    pub(super) fn text_document(&mut self) {
        let path = FieldPath::ROOT;
        match self.parse() {
            Ok(Document {
                root: Some(root),
                ignored,
            }) => {
                if let Some(file) = foreign_format::recognize(&root, self.text) {
                    self.foreign_file(file.span, file.message, &file.format);
                } else {
                    self.document(&root);
                    self.warn_ignored(ignored);
                }
            }
            Ok(Document { ignored, .. }) => {
                self.empty_domain(Span::START, &path);
                self.warn_ignored(ignored);
            }
            Err(error) if foreign_format::is_asp_net_core_text(self.text) => {
                let message = excerpt(&error.message);
                let message = format!("error loading config file: yaml: {message}");
                self.foreign_file(error.span, message, &ForeignFormat::AspNetCoreRateLimit);
            }
            Err(error) => self.syntax_error(&error),
        }
    }

    /// Loads the root mapping: the domain and its descriptors.
    pub(super) fn document(&mut self, root: &Node) {
        let path = FieldPath::ROOT;
        let Some(fields) = self.fields(root, &path, &grammar::ROOT) else {
            return;
        };
        let domain = self.text(&fields, &path, "domain");
        let usable =
            !domain.is_empty() && self.check_length(domain, fields.span_of("domain"), &path);
        if domain.is_empty() {
            // One mistake, one error: a misspelt key has been reported.
            if !fields.is_misspelt("domain") {
                self.empty_domain(fields.span_of("domain"), &path);
            }
        } else if usable && !self.rules.add_domain(domain) && !self.options.merge_domains {
            let message = format!("duplicate domain '{}' in config file", excerpt(domain));
            let error = Diagnostic::error(Code::Duplicate, fields.span_of("domain"), message);
            let error = match self.domains.get(domain) {
                Some(origin) => self.cite(error, origin.name, "first defined here"),
                None => error,
            };
            let help = "keep all rules of a domain in one file, or set MERGE_DOMAIN_CONFIG=true";
            self.report(&path, error.help(help));
            return;
        }
        let name = self.place(fields.span_of("domain"));
        self.domains
            .entry(domain.to_owned())
            .or_insert(DomainOrigin {
                name,
                all_or_nothing: None,
                on_store_failure: None,
            });
        self.all_or_nothing(&fields, &path, domain);
        self.on_store_failure(&fields, &path, domain);
        self.warn_without_descriptors(&fields, &path, domain);
        let context = DescriptorContext {
            domain: &Arc::from(domain),
            parent: usable.then_some(Parent::Domain(domain)),
            levels: &[],
            holder_key: None,
        };
        self.descriptors(&fields, &path, context);
    }

    fn all_or_nothing(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, domain: &str) {
        if fields.given("all_or_nothing").is_none() {
            return;
        }
        let whole = self.boolean(fields, path, "all_or_nothing");
        let span = fields.span_of("all_or_nothing");
        if self.rules.all_or_nothing(domain.as_bytes()) == Some(!whole) {
            let message = format!(
                "all_or_nothing is {} in an earlier file of this domain, and {whole} here",
                !whole
            );
            let error = Diagnostic::error(Code::ConflictingKeys, span, message);
            let error = error.help("set it in one file, or to the same value in each");
            let first = self
                .domains
                .get(domain)
                .and_then(|origin| origin.all_or_nothing);
            let error = match first {
                Some(first) => self.cite(error, first, "first set here"),
                None => error,
            };
            self.report(path, error);
        }
        self.rules.set_all_or_nothing(domain, whole);
        let place = self.place(span);
        if let Some(origin) = self.domains.get_mut(domain) {
            origin.all_or_nothing.get_or_insert(place);
        }
    }

    pub(super) fn on_store_failure(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        domain: &str,
    ) {
        let name = self.text(fields, path, "on_store_failure");
        if name.is_empty() {
            return;
        }
        let span = fields.span_of("on_store_failure");
        let Some(answer) = OnStoreFailure::from_name(name) else {
            let names = OnStoreFailure::ALL.map(OnStoreFailure::name);
            self.unknown_word(fields, path, "on_store_failure", (name, &names));
            return;
        };
        let earlier = self.rules.on_store_failure(domain.as_bytes());
        if let Some(earlier) = earlier.filter(|earlier| *earlier != answer) {
            let message = format!(
                "on_store_failure is {} in an earlier file of this domain, and {name} here",
                earlier.name()
            );
            let error = Diagnostic::error(Code::ConflictingKeys, span, message);
            let error = error.help("set it in one file, or to the same value in each");
            let first = self
                .domains
                .get(domain)
                .and_then(|origin| origin.on_store_failure);
            let error = match first {
                Some(first) => self.cite(error, first, "first set here"),
                None => error,
            };
            self.report(path, error);
        }
        self.rules.set_on_store_failure(domain, answer);
        let place = self.place(span);
        if let Some(origin) = self.domains.get_mut(domain) {
            origin.on_store_failure.get_or_insert(place);
        }
    }

    /// Reports a file of another program. Nothing else of it is examined.
    fn foreign_file(&mut self, span: Span, message: String, format: &ForeignFormat) {
        let error = Diagnostic::error(Code::ForeignFile, span, message).help(format.help());
        self.report_in(Phase::Names, &FieldPath::ROOT, error);
    }

    fn warn_without_descriptors(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        domain: &str,
    ) {
        let is_empty = match fields.given("descriptors").map(|node| &node.content) {
            None => true,
            Some(Content::Sequence(items)) => items.is_empty(),
            Some(_) => false,
        };
        // A file may hold only settings of a domain whose descriptors are in other files.
        let settings = ["all_or_nothing", "on_store_failure"];
        let has_settings = settings.iter().any(|name| fields.given(name).is_some());
        // An error, or a misplaced key of this mapping, may say why.
        let file = self.place(fields.span).file;
        if self.error_count() > 0 || self.has_warning(file, "") {
            return;
        }
        if is_empty && !(has_settings && self.options.merge_domains) {
            let message = format!(
                "no descriptors: this file limits nothing in '{}'",
                excerpt(domain)
            );
            let span = match fields.get("descriptors") {
                Some(_) => fields.span_of("descriptors"),
                None => fields.span_of("domain"),
            };
            let help = "add `descriptors`, a list of `- key: NAME` with a `rate_limit` each";
            let warning = Diagnostic::warning(Code::NoDescriptors, span, message).help(help);
            self.report(path, warning);
        }
    }

    fn empty_domain(&mut self, at: Span, path: &FieldPath<'_>) {
        let message = "config file cannot have empty domain";
        let help = "add `domain: NAME`, the domain that Envoy's rate limit filter names";
        self.error(Code::MissingKey, at, path, message, help);
    }
}
