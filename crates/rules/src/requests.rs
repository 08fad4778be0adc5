//! Descriptors of HTTP requests: the field `requests` of a rules file.
//!
//! Proxies that cannot send descriptors send the request itself. The vocabulary is that of the
//! clients' middleware (`clients/README.md`), and both pass the same test cases
//! (`clients/vectors/descriptors.json`).
//!
//! What it deliberately does not do: know which headers of a proxy hold the request.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use tollgate_limiter::{Address, Prefix};

/// How descriptors are made of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestMapping {
    /// Proxies whose forwarding headers are read.
    pub trusted_proxies: Vec<Prefix>,
    /// Paths that pass without a check.
    pub skip_paths: Vec<PathTemplate>,
    /// The entries of each descriptor.
    pub descriptors: Vec<Vec<RequestEntry>>,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestEntry {
    /// Its key.
    pub key: String,
    /// Where its value comes from.
    pub source: RequestSource,
    /// Its value where the source has none. Without it, the descriptor is left out.
    pub default: Option<String>,
}

/// Where a value comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestSource {
    /// A fixed text.
    Value(String),
    /// The values of a header, joined by commas.
    Header(HeaderName),
    /// The method.
    Method,
    /// The path without the query, as sent.
    Path,
    /// The first of these templates that matches the path.
    PathTemplates(Vec<PathTemplate>),
    /// The address of the client, behind trusted proxies.
    RemoteAddress,
}

/// A path template. `{name}` matches one segment that is not empty, `{name...}` at the end the
/// rest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathTemplate(pub String);

/// A request, as its client sent it.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, with or without a query.
    pub target: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The address of the connection; none of a Unix socket.
    pub peer: Option<IpAddr>,
}

/// The entries of one descriptor.
pub type RequestDescriptor<'a> = Vec<(&'a str, Cow<'a, [u8]>)>;

/// An address as the limiter compares it.
fn address(ip: IpAddr) -> Address {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Address::V4(ip.to_bits()),
        IpAddr::V6(ip) => Address::V6(ip.to_bits()),
    }
}

/// Reads an address, with or without brackets, port and zone.
fn parse_address(text: &str) -> Option<Address> {
    let is_port = |port: &str| port.parse::<u16>().is_ok() && !port.starts_with('+');
    let text = if let Some(rest) = text.strip_prefix('[') {
        let (inside, port) = rest.split_once(']')?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        v6_text(inside).filter(|_| is_whole)?
    } else if text.matches(':').count() > 1 {
        v6_text(text)?
    } else {
        match text.split_once(':') {
            Some((address, port)) if is_port(port) => address,
            Some(_) => return None,
            None => text,
        }
    };
    Address::parse(text.as_bytes())
}

/// The text of an IPv6 address without its zone.
fn v6_text(text: &str) -> Option<&str> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.contains(':').then_some(address)
}

// === impl RequestMapping ===

impl RequestMapping {
    /// Whether forwarding headers of this address are read.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusts_address(address(peer))
    }

    fn trusts_address(&self, address: Address) -> bool {
        let mut blocks = self.trusted_proxies.iter();
        blocks.any(|block| address.prefix(block.length()) == *block)
    }

    /// The descriptors of a request. Without one, the request passes without a check.
    pub fn descriptors<'a>(&'a self, request: &HttpRequest<'a>) -> Vec<RequestDescriptor<'a>> {
        let path = request.path();
        if self.skip_paths.iter().any(|skipped| skipped.matches(path)) {
            return Vec::new();
        }
        let descriptors = self.descriptors.iter().map(|entries| {
            let entries = entries.iter();
            let entries = entries.map(|entry| Some((&*entry.key, self.value(entry, request)?)));
            entries.collect::<Option<_>>()
        });
        descriptors.flatten().collect()
    }

    fn value<'a>(
        &'a self,
        entry: &'a RequestEntry,
        request: &HttpRequest<'a>,
    ) -> Option<Cow<'a, [u8]>> {
        let value = match &entry.source {
            RequestSource::Value(value) => Some(Cow::Borrowed(value.as_bytes())),
            RequestSource::Header(name) => header(request.headers, name),
            RequestSource::Method => Some(request.method.as_bytes().into()),
            RequestSource::Path => Some(request.path().as_bytes().into()),
            RequestSource::PathTemplates(templates) => {
                let mut templates = templates.iter();
                let found = templates.find(|template| template.matches(request.path()));
                found.map(|template| template.0.as_bytes().into())
            }
            RequestSource::RemoteAddress => self
                .remote_address(request)
                .map(|address| address.to_string().into_bytes().into()),
        };
        value.or_else(|| Some(entry.default.as_deref()?.as_bytes().into()))
    }

    /// The address of the connection, or the rightmost of `X-Forwarded-For` that is no trusted
    /// proxy. Reading ends at text that is no address.
    fn remote_address(&self, request: &HttpRequest<'_>) -> Option<Address> {
        let mut client = address(request.peer?);
        let lines: Vec<_> = request.headers.get_all("x-forwarded-for").iter().collect();
        for line in lines.into_iter().rev() {
            for text in line.as_bytes().rsplit(|byte| *byte == b',') {
                if !self.trusts_address(client) {
                    return Some(client);
                }
                let text = str::from_utf8(text).ok();
                let Some(next) = text.and_then(|text| parse_address(text.trim())) else {
                    return Some(client);
                };
                client = next;
            }
        }
        Some(client)
    }
}

/// The values of a header, joined by commas; none if empty.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut values = headers.get_all(name).iter();
    let mut value = Cow::Borrowed(values.next()?.as_bytes());
    for more in values {
        let joined = value.to_mut();
        joined.push(b',');
        joined.extend_from_slice(more.as_bytes());
    }
    Some(value).filter(|value| !value.is_empty())
}

// === impl PathTemplate ===

impl PathTemplate {
    /// Whether it matches this path.
    pub fn matches(&self, path: &str) -> bool {
        let mut parts = path.split('/');
        let mut template = self.0.split('/').peekable();
        while let Some(wanted) = template.next() {
            let variable = wanted.strip_prefix('{');
            let variable = variable.and_then(|name| name.strip_suffix('}'));
            let Some(part) = parts.next() else {
                return false;
            };
            let is_match = match variable {
                Some(name) if name.ends_with("...") && template.peek().is_none() => return true,
                Some(_) => !part.is_empty(),
                None => part == wanted,
            };
            if !is_match {
                return false;
            }
        }
        parts.next().is_none()
    }
}

// === impl HttpRequest ===

impl<'a> HttpRequest<'a> {
    /// The path without the query.
    fn path(&self) -> &'a str {
        let target = self.target;
        target
            .split_once(['?', '#'])
            .map_or(target, |(path, _)| path)
    }
}
