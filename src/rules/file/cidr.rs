//! Address prefixes: the fields `cidr` and `ipv6_prefix`.

use crate::rules::excerpt::excerpt;
use crate::rules::file::diagnostic::Span;
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::loader::Loader;
use crate::rules::file::values::name;
use crate::rules::yaml::Node;
use tollgate_limiter::{Prefix, PrefixError, Values};

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn prefixes(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let mut prefixes = Vec::new();
        if let Some(text) = fields.given("cidr").and_then(Node::text) {
            let prefix = self.prefix(text, fields.span_of("cidr"), path)?;
            prefixes.push(prefix);
            return Some(Values::Prefixes(prefixes));
        }
        let advice = "write a prefix or a list of them: `cidr: [10.0.0.0/8, \"fd00::/8\"]`";
        let items = self.items(fields, path, "cidr", advice);
        self.check_list_length(fields, path, ("cidr", items), "prefixes")?;
        for (position, item) in items.iter().enumerate() {
            let path = path.item("cidr", position);
            let advice = "remove it, or write a prefix such as 10.0.0.0/8";
            let Some(text) = self.item_text(item, &path, advice) else {
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
        let (message, advice) = match error {
            PrefixError::NoAddress => (
                format!("'{excerpt}' is no prefix of addresses"),
                "write it as 10.0.0.0/8, \"fd00::/8\", or an address alone".to_owned(),
            ),
            PrefixError::Length(most) => (
                format!("the length of '{excerpt}' is not a whole number from 0 to {most}"),
                format!("write such a number after the `/`, or none for /{most}"),
            ),
            // The whole prefix would be far more than the IPv4 addresses that were intended.
            PrefixError::HostBits { network, host } if network.is_v6() && !host.is_v6() => (
                format!(
                    "'{excerpt}' is shorter than what maps IPv4 addresses into IPv6, which is 96 bits"
                ),
                format!(
                    "write a length from 96 to 128, 0.0.0.0/0 for all of IPv4, or {host:#} for the one address"
                ),
            ),
            PrefixError::HostBits { network, host } => (
                format!("'{excerpt}' has bits set beyond its prefix"),
                format!("write {network:#} for all of it, or {host:#} for the one address"),
            ),
        };
        self.error(at, path, message, &advice);
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
            self.error(at, path, message, "write 64 for one bucket a network");
            return None;
        };
        let longest = match values {
            Some(Values::Prefixes(prefixes)) => {
                let v6 = prefixes.iter().filter(|prefix| prefix.is_v6());
                let Some(longest) = v6.max_by_key(|prefix| prefix.length()) else {
                    let message = "ipv6_prefix means nothing where no prefix of cidr is of IPv6";
                    self.error(at, path, message.to_owned(), "remove it");
                    return None;
                };
                Some(longest)
            }
            // An error in the values has been reported.
            Some(Values::Any) | None => None,
            Some(values @ (Values::Text(_) | Values::List(_) | Values::Regex(_))) => {
                let message = format!("ipv6_prefix means nothing beside {}", name(values));
                let advice = "remove it; it belongs beside `cidr`, or where any value matches";
                self.error(at, path, message, advice);
                return None;
            }
        };
        if let Some(longest) = longest.filter(|longest| longest.length() > bits) {
            let message = format!(
                "ipv6_prefix {bits} groups more than the prefix {longest:#} that it stands beside"
            );
            let advice = format!("write {} or more", longest.length());
            self.error(at, path, message, &advice);
        }
        if share_threshold && longest.is_some() {
            let message = "ipv6_prefix means nothing beside share_threshold";
            let advice = "remove one: all that match share one bucket, or each group has its own";
            self.error(at, path, message.to_owned(), advice);
        }
        Some(bits)
    }
}
