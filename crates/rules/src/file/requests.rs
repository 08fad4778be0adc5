//! The field `requests`: how descriptors are made of HTTP requests.

use std::sync::Arc;

use http::HeaderName;

use crate::excerpt::excerpt;
use crate::file::grammar;
use crate::file::loader::Loader;
use crate::file::values::{LIST_ITEMS_MAX, check_list_length, item_text, prefix};
use crate::file::{Code, FieldPlace, Fields, Item, Reader};
use crate::requests::{PathTemplate, RequestEntry, RequestMapping, RequestSource};
use crate::yaml::Content;

/// How many descriptors are made of one request, and how many entries one of them has.
const DESCRIPTORS_MAX: usize = 64;

/// The fields of an entry that say where its value comes from.
const SOURCES: [&str; 6] = [
    "value",
    "header",
    "method",
    "path",
    "path_templates",
    "remote_address",
];

/// How a list of descriptors is written.
const EXAMPLE: &str = "descriptors: [[{ key: remote_address, remote_address: true }]]";

/// Reads the field at the root of a file of this domain.
pub(super) fn requests(loader: &mut Loader<'_>, fields: &Fields<'_>, domain: &str) {
    let reader = &mut loader.reader;
    let Some(inner) = reader.inner(fields, "requests", &grammar::REQUESTS) else {
        return;
    };
    if loader.requests.contains_key(domain) {
        let message = "an earlier file of this domain has requests, too";
        let help = "keep them in one file";
        reader.error(Code::Duplicate, fields.at_key("requests"), message, help);
        return;
    }
    let proxies = texts(reader, &inner, "trusted_proxies", "prefixes");
    let proxies = proxies.into_iter();
    let mapping = RequestMapping {
        trusted_proxies: proxies
            .filter_map(|(item, text)| prefix(reader, text, item.at()))
            .collect(),
        skip_paths: templates(reader, &inner, "skip_paths"),
        descriptors: descriptors(reader, &inner),
    };
    loader.requests.insert(domain.to_owned(), Arc::new(mapping));
}

fn descriptors(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Vec<RequestEntry>> {
    let items = reader.items(fields, "descriptors", EXAMPLE);
    let items = bounded(reader, fields.at("descriptors"), items);
    let lists = items.into_iter().map(|item| {
        let Content::Sequence(entries) = &item.node.content else {
            let message = "a descriptor of requests is not a list of entries";
            let help = format!("write a list of lists: `{EXAMPLE}`");
            reader.wrong_type(item.at(), item.node, message, help);
            return Vec::new();
        };
        let is_affordable = reader.spend(entries, item.at());
        let entries = entries.iter().filter(|_| is_affordable).enumerate();
        let entries = entries.map(|(position, node)| Item {
            node,
            path: item.path.item("entries", position),
        });
        let entries = bounded(reader, item.at(), entries.collect()).into_iter();
        entries.filter_map(|one| entry(reader, &one)).collect()
    });
    lists.collect()
}

/// A list of at most [`DESCRIPTORS_MAX`] items.
fn bounded<'n>(reader: &mut Reader<'_>, at: FieldPlace, items: Vec<Item<'n>>) -> Vec<Item<'n>> {
    if items.len() > DESCRIPTORS_MAX {
        let message = format!("the list has more than {DESCRIPTORS_MAX} items");
        let help = format!("use fewer, such as `{EXAMPLE}`");
        reader.error(Code::TooLarge, at, message, help);
        return Vec::new();
    }
    items
}

fn entry(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<RequestEntry> {
    let fields = reader.fields(item.node, item.path.clone(), &grammar::REQUEST_ENTRY)?;
    let key = reader.bounded_text(&fields, "key");
    reader.require(&fields, "key", "add `key: NAME`, the key of the entry");
    let mut sources = SOURCES
        .into_iter()
        .filter(|name| fields.get(name).is_some());
    let (Some(name), None) = (sources.next(), sources.next()) else {
        if SOURCES.iter().any(|name| fields.is_misspelt(name)) {
            return None;
        }
        let message = "an entry of requests does not have exactly one source";
        let help = format!("set one of {}", SOURCES.join(", "));
        reader.error(Code::ConflictingKeys, item.at(), message, &help);
        return None;
    };
    let source = match name {
        "value" => {
            let value = reader.text(&fields, "value");
            reader.check_length(value, fields.at("value"));
            RequestSource::Value(value.to_owned())
        }
        "header" => {
            let header = reader.text(&fields, "header");
            let Ok(name) = header.parse::<HeaderName>() else {
                let message = format!("'{}' is not the name of a header", excerpt(header));
                let help = "use a name of letters, digits and dashes";
                reader.error(Code::InvalidHeader, fields.at("header"), message, help);
                return None;
            };
            RequestSource::Header(name)
        }
        "path_templates" => {
            RequestSource::PathTemplates(templates(reader, &fields, "path_templates"))
        }
        flag => {
            if !reader.boolean(&fields, flag) {
                let message = format!("{flag} is not true");
                let help = format!("write `{flag}: true`, or another source");
                reader.error(Code::OutOfRange, fields.at(flag), message, &help);
            }
            match flag {
                "method" => RequestSource::Method,
                "path" => RequestSource::Path,
                _ => RequestSource::RemoteAddress,
            }
        }
    };
    let default = fields.get("default").map(|_| {
        let default = reader.text(&fields, "default");
        reader.check_length(default, fields.at("default"));
        default.to_owned()
    });
    Some(RequestEntry {
        key: key?.to_owned(),
        source,
        default,
    })
}

fn templates(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    name: &'static str,
) -> Vec<PathTemplate> {
    let texts = texts(reader, fields, name, "path templates").into_iter();
    let templates = texts.filter_map(|(item, text)| {
        if !text.starts_with('/') {
            let message = format!("'{}' is not a path template", excerpt(text));
            let help = "write a path that begins with a slash, such as /users/{id}";
            reader.error(Code::InvalidPattern, item.at(), message, help);
            return None;
        }
        Some(PathTemplate(text.to_owned()))
    });
    templates.collect()
}

/// The texts of a list.
fn texts<'n>(
    reader: &mut Reader<'_>,
    fields: &Fields<'n>,
    name: &'static str,
    things: &str,
) -> Vec<(Item<'n>, &'n str)> {
    let example = match name {
        "trusted_proxies" => "trusted_proxies: [10.0.0.0/8]",
        "skip_paths" => "skip_paths: [/healthz]",
        _ => "path_templates: [\"/users/{id}\"]",
    };
    let items = reader.items(fields, name, example);
    if items.is_empty() || items.len() > LIST_ITEMS_MAX {
        check_list_length(reader, fields, name, &items, things);
        return Vec::new();
    }
    let texts = items.into_iter().filter_map(|item| {
        let text = item_text(reader, &item, "remove it")?;
        let fits = reader.check_length(text, item.at());
        fits.then_some((item, text))
    });
    texts.collect()
}
