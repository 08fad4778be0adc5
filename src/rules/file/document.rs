//! The root of a rules file: its domain, the settings of the domain, and its descriptors.

use std::sync::Arc;

use crate::rules::excerpt::excerpt;
use crate::rules::file::code::Code;
use crate::rules::file::descriptor::DescriptorContext;
use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::foreign_format::{self, ForeignFormat};
use crate::rules::file::grammar;
use crate::rules::file::loader::{Loader, Phase};
use crate::rules::yaml::{self, Content, Node};
use tollgate_limiter::{OnStoreFailure, Parent};

// === impl Loader ===

impl Loader<'_> {
    /// Parses a text and loads its document.
    pub(super) fn text_document(&mut self, text: &str) {
        let path = FieldPath::ROOT;
        match yaml::parse(text) {
            Ok(Some(root)) if !root.is_null() => match foreign_format::recognize(&root, text) {
                Some(file) => self.foreign_file(file.span, file.message, &file.format),
                None => self.document(&root),
            },
            Ok(_) => self.empty_domain(Span::START, &path),
            Err(error) => {
                let message = format!(
                    "error loading config file: yaml: {}",
                    excerpt(&error.message)
                );
                if foreign_format::is_asp_net_core_text(text) {
                    let format = ForeignFormat::AspNetCoreRateLimit;
                    return self.foreign_file(error.span, message, &format);
                }
                self.error(error.span, &path, message, "mend the YAML at this place");
            }
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
            self.empty_domain(fields.span, &path);
        } else if usable && !self.rules.add_domain(domain) && !self.options.merge_domains {
            self.error(
                fields.span_of("domain"),
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
                let at = fields.span_of("all_or_nothing");
                self.error(at, &path, message, "say it once, or the same in each file");
            }
            self.rules.set_all_or_nothing(domain, whole);
        }
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
        let at = fields.span_of("on_store_failure");
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

    /// Reports a file of another program. Nothing else of it is examined.
    fn foreign_file(&mut self, span: Span, message: String, format: &ForeignFormat) {
        let error = Diagnostic::error(Code::ForeignFile, span, message)
            .label(format.label())
            .help(format.help());
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
        // A misplaced key of this mapping says why.
        let is_told = |one: &Diagnostic| one.file == self.file && one.path.is_empty();
        if self.warnings.iter().any(is_told) {
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
        self.error(
            at,
            path,
            "config file cannot have empty domain".to_owned(),
            "add `domain: NAME`, the domain that Envoy's rate limit filter names",
        );
    }
}
