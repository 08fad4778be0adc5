//! The root of a rules file: its domain, the settings of the domain, and its descriptors.

use std::fmt::Display;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::descriptor::{DescriptorContext, descriptors};
use crate::file::diagnostic::{FilePlace, Phase};
use crate::file::foreign_format::{self, ForeignFormat};
use crate::file::grammar;
use crate::file::loader::{DomainOrigin, Loader};
use crate::file::plans::check_plans;
use crate::file::rate_limit::limit_from_request;
use crate::file::requests::requests;
use crate::file::{Code, Diagnostic, FieldPath, FieldPlace, Fields, Reader, Span};
use crate::yaml::{Content, Document, Node};
use tollgate_limiter::{LimitFromRequest, OnUndecided, Parent};

/// Parses the current file and loads its document.
pub(super) fn text_document(loader: &mut Loader<'_>) {
    let reader = &mut loader.reader;
    match reader.parse() {
        Ok(Document {
            root: Some(root),
            ignored,
        }) => {
            if let Some(file) = foreign_format::recognize(&root, reader.text) {
                foreign_file(reader, file.span, file.message, &file.format);
            } else {
                document(loader, &root);
                loader.reader.warn_ignored(ignored);
            }
        }
        Ok(Document { ignored, .. }) => {
            empty_domain(reader, Span::START.into());
            reader.warn_ignored(ignored);
        }
        Err(error) if foreign_format::is_asp_net_core_text(reader.text) => {
            let message = excerpt(&error.message);
            let message = format!("error loading config file: yaml: {message}");
            let format = ForeignFormat::AspNetCoreRateLimit;
            foreign_file(reader, error.span, message, &format);
        }
        Err(error) => reader.syntax_error(&error),
    }
}

/// Loads the root mapping: the domain and its descriptors.
pub(super) fn document(loader: &mut Loader<'_>, root: &Node) {
    let reader = &mut loader.reader;
    let Some(fields) = reader.fields(root, FieldPath::ROOT, &grammar::ROOT) else {
        return;
    };
    if fields.has("plans") {
        check_plans(loader, &fields);
        // A file may hold plans alone.
        if !fields.has_any(&["domain", "descriptors"]) {
            return;
        }
    }
    let reader = &mut loader.reader;
    let domain = reader.text(&fields, "domain");
    let usable = !domain.is_empty() && reader.check_length(domain, fields.at("domain"));
    if domain.is_empty() {
        // One mistake, one error: a misspelt key has been reported.
        if !fields.is_misspelt("domain") {
            empty_domain(reader, fields.at("domain"));
        }
    } else if usable && !loader.rules.add_domain(domain) && !loader.options.merge_domains {
        let message = format!("duplicate domain '{}' in config file", excerpt(domain));
        let error = Diagnostic::error(Code::Duplicate, fields.at("domain"), message);
        let first = loader.domains.get(domain).map(|origin| origin.name);
        let error = cite_first(reader, error, first, "first defined here");
        let help = "keep all rules of a domain in one file, or set MERGE_DOMAIN_CONFIG=true";
        reader.report(error.help(help));
        return;
    }
    let name = reader.place(fields.span_of("domain"));
    loader
        .domains
        .entry(domain.to_owned())
        .or_insert(DomainOrigin {
            name,
            all_or_nothing: None,
            on_store_failure: None,
        });
    settings(loader, &fields, domain);
    requests(loader, &fields, domain);
    warn_without_descriptors(loader, &fields, domain);
    let context = DescriptorContext {
        domain: &Arc::from(domain),
        parent: usable.then_some(Parent::Domain(domain)),
        levels: &[],
        holder_key: None,
    };
    let first_rule = loader.rules.rules().len();
    descriptors(loader, &fields, context);
    // A file of the reference service means what it means there. Where a file has more, its
    // algorithms, responses and reservations shall hold for the limits of requests, too.
    let written = limit_from_request(&mut loader.reader, &fields);
    let default = loader
        .reader
        .has_own_fields
        .then_some(LimitFromRequest::Adjust);
    if let Some(default) = written.or(default) {
        loader.rules.set_limit_from_request(first_rule, default);
    }
}

/// Reads the settings of the domain, which other files may have set before.
fn settings(loader: &mut Loader<'_>, fields: &Fields<'_>, domain: &str) {
    let Loader {
        reader,
        rules,
        domains,
        ..
    } = loader;
    let Some(origin) = domains.get_mut(domain) else {
        return;
    };
    if let Some(whole) = reader.optional_boolean(fields, "all_or_nothing") {
        let earlier = rules.all_or_nothing(domain.as_bytes());
        let first = &mut origin.all_or_nothing;
        set_once(reader, fields, "all_or_nothing", earlier, &whole, first);
        rules.set_all_or_nothing(domain, whole);
    }
    if let Some(answer) = on_store_failure(reader, fields) {
        let earlier = rules.on_store_failure(domain.as_bytes());
        let (earlier, name) = (earlier.map(OnUndecided::name), answer.name());
        let first = &mut origin.on_store_failure;
        set_once(reader, fields, "on_store_failure", earlier, &name, first);
        rules.set_on_store_failure(domain, answer);
    }
}

/// Reads the field `on_store_failure`.
pub(super) fn on_store_failure(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<OnUndecided> {
    reader.word(fields, "on_store_failure", |name| name.parse().ok())
}

/// Reports a setting that an earlier file has set to another value. Records where it was first set.
fn set_once<T: Display + PartialEq>(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    name: &str,
    earlier: Option<T>,
    value: &T,
    first: &mut Option<FilePlace>,
) {
    if let Some(earlier) = earlier.filter(|earlier| earlier != value) {
        let message =
            format!("{name} is {earlier} in an earlier file of this domain, and {value} here");
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at(name), message);
        let error = cite_first(reader, error, *first, "first set here");
        reader.report(error.help("set it in one file, or to the same value in each"));
    }
    first.get_or_insert(reader.place(fields.span_of(name)));
}

/// Adds the place of the first of several to a diagnostic of the current file.
fn cite_first(
    reader: &Reader<'_>,
    error: Diagnostic,
    first: Option<FilePlace>,
    label: &str,
) -> Diagnostic {
    match first {
        Some(first) => reader.cite(reader.current_file(), error, first, label),
        None => error,
    }
}

/// Reports a file of another program. Nothing else of it is examined.
fn foreign_file(reader: &mut Reader<'_>, span: Span, message: String, format: &ForeignFormat) {
    let error = Diagnostic::error(Code::ForeignFile, span, message).help(format.help());
    reader.report_in(Phase::Names, error);
}

fn warn_without_descriptors(loader: &mut Loader<'_>, fields: &Fields<'_>, domain: &str) {
    let is_empty = match fields.given("descriptors").map(|node| &node.content) {
        None => true,
        Some(Content::Sequence(items)) => items.is_empty(),
        Some(_) => false,
    };
    // A file may hold only settings of a domain whose descriptors are in other files.
    let has_settings = fields.has_any(&["all_or_nothing", "on_store_failure", "requests", "plans"]);
    let reader = &mut loader.reader;
    // An error, or a misplaced key of this mapping, may say why.
    if reader.error_count() > 0 || reader.has_warning(reader.current_file(), "") {
        return;
    }
    if is_empty && !(has_settings && loader.options.merge_domains) {
        let domain = excerpt(domain);
        let message = format!("no descriptors: this file limits nothing in '{domain}'");
        let at = match fields.get("descriptors") {
            Some(_) => fields.at("descriptors"),
            None => fields.at("domain"),
        };
        let help = "add `descriptors`, a list of `- key: NAME` with a `rate_limit` each";
        reader.report(Diagnostic::warning(Code::NoDescriptors, at, message).help(help));
    }
}

fn empty_domain(reader: &mut Reader<'_>, at: FieldPlace) {
    let message = "config file cannot have empty domain";
    let help = "add `domain: NAME`, the domain that Envoy's rate limit filter names";
    reader.error(Code::MissingKey, at, message, help);
}
