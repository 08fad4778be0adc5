//! Address prefixes: the fields `cidr` and `ipv6_prefix`.

use std::net::IpAddr;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use crate::file::values::name;
use crate::yaml::Node;
use tollgate_limiter::{Prefix, PrefixError, Values};

/// Whether a text is an address with a port, brackets or a zone.
fn is_address_with_more(text: &str) -> bool {
    let host = match text.strip_prefix('[') {
        Some(inside) => inside.split(']').next(),
        None if text.contains('%') => text.split('%').next(),
        None => text.rsplit_once(':').map(|(host, _)| host),
    };
    host.is_some_and(|host| host.parse::<IpAddr>().is_ok())
}

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn prefixes(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let mut prefixes = Vec::new();
        if let Some(text) = fields.given("cidr").and_then(Node::text) {
            let prefix = self.prefix(text, fields.span_of("cidr"), path)?;
            prefixes.push(prefix);
            return Some(Values::Prefixes(prefixes));
        }
        let items = self.items(fields, path, "cidr", "cidr: [10.0.0.0/8, \"fd00::/8\"]");
        self.check_list_length(fields, path, ("cidr", items), "prefixes")?;
        for (position, item) in items.iter().enumerate() {
            let path = path.item("cidr", position);
            let help = "remove it, or write a prefix such as 10.0.0.0/8";
            let Some(text) = self.item_text(item, &path, help) else {
                continue;
            };
            prefixes.extend(self.prefix(text, item.span, &path));
        }
        (prefixes.len() == items.len()).then_some(Values::Prefixes(prefixes))
    }

    pub(super) fn prefix(&mut self, text: &str, at: Span, path: &FieldPath<'_>) -> Option<Prefix> {
        let error = match Prefix::parse(text) {
            Ok(prefix) => return Some(prefix),
            Err(error) => error,
        };
        let excerpt = excerpt(text);
        let (message, help) = match error {
            PrefixError::NoAddress if is_address_with_more(text) => (
                format!("'{excerpt}' is not an address prefix"),
                "write the address without port, brackets and zone; a value that has them is in no prefix".to_owned(),
            ),
            PrefixError::NoAddress => (
                format!("'{excerpt}' is not an address prefix"),
                "write a prefix such as 10.0.0.0/8 or \"fd00::/8\", or an address".to_owned(),
            ),
            PrefixError::Length(most) => (
                format!("the length of '{excerpt}' is not a whole number from 0 to {most}"),
                format!("write a number from 0 to {most} after the `/`"),
            ),
            // The whole prefix would be far more than the IPv4 addresses that were intended.
            PrefixError::HostBits { network, host } if network.is_v6() && !host.is_v6() => (
                format!(
                    "'{excerpt}' is shorter than the 96 bits that map IPv4 addresses into IPv6"
                ),
                format!(
                    "write a length from 96 to 128, 0.0.0.0/0 for all of IPv4, or {host:#} for the one address"
                ),
            ),
            PrefixError::HostBits { network, host } => (
                format!("'{excerpt}' has bits set beyond its prefix"),
                format!("write {network:#} for the network, or {host:#} for the one address"),
            ),
        };
        self.error(Code::InvalidAddress, at, path, message, help);
        None
    }

    /// Reads `ipv6_prefix`: the number of bits of an IPv6 address that make its bucket.
    pub(crate) fn ipv6_prefix(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        values: Option<&Values>,
        share_threshold: bool,
    ) -> Option<u8> {
        let number = self.integer(fields, path, "ipv6_prefix")?;
        let at = fields.span_of("ipv6_prefix");
        let Some(bits) = u8::try_from(number)
            .ok()
            .filter(|bits| (1..=128).contains(bits))
        else {
            let message = format!("ipv6_prefix must be from 1 to 128, but is {number}");
            let help = "write 64 for one bucket per network";
            self.error(Code::OutOfRange, at, path, message, help);
            return None;
        };
        let longest = match values {
            Some(Values::Prefixes(prefixes)) => {
                let v6 = prefixes.iter().filter(|prefix| prefix.is_v6());
                let Some(longest) = v6.max_by_key(|prefix| prefix.length()) else {
                    let message = "ipv6_prefix has no effect: no prefix of cidr is IPv6";
                    let error = Diagnostic::error(Code::ConflictingKeys, at, message);
                    let cidr = fields.span_of("cidr");
                    let error = error.related(cidr, "only IPv4 prefixes");
                    let error = error.help("remove ipv6_prefix");
                    let error = self.without_field(fields, "ipv6_prefix", error);
                    self.report(path, error);
                    return None;
                };
                Some(longest)
            }
            // An error in the values has been reported.
            Some(Values::Any) | None => None,
            Some(values @ (Values::Text(_) | Values::List(_) | Values::Regex(_))) => {
                let name = name(values);
                let message = format!("ipv6_prefix has no effect beside {name}");
                let error = Diagnostic::error(Code::ConflictingKeys, at, message);
                let error = error.related(fields.span_of(name), format!("`{name}` is set here"));
                let error = error.help("remove ipv6_prefix; it needs `cidr`, or no value at all");
                let error = self.without_field(fields, "ipv6_prefix", error);
                self.report(path, error);
                return None;
            }
        };
        if let Some(longest) = longest.filter(|longest| longest.length() > bits) {
            let message =
                format!("ipv6_prefix {bits} is shorter than the prefix {longest:#} of cidr");
            let error = Diagnostic::error(Code::ConflictingKeys, at, message);
            let help = format!("write {} or more", longest.length());
            self.report(path, error.help(help));
        }
        if share_threshold && longest.is_some() {
            let message = "ipv6_prefix has no effect beside share_threshold";
            let error = Diagnostic::error(Code::ConflictingKeys, at, message);
            let sharing = fields.span_of("share_threshold");
            let error = error.related(sharing, "all addresses share one bucket");
            self.report(path, error.help("remove one of them"));
        }
        Some(bits)
    }
}
