//! Descriptors on the command line: `key=value,key=value`, with `\,` for a comma of a value.

use crate::admin_api::parse_entries;

/// One descriptor, as typed and as entries.
#[derive(Clone, Debug)]
pub(super) struct DescriptorArgument {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

/// Parses a descriptor. An entry without `=`, which is often a typing error, is refused: with an
/// empty value it would ask about another descriptor.
pub(super) fn parse_descriptor(text: &str) -> Result<DescriptorArgument, String> {
    let pairs = parse_entries(text).map_err(|entry| {
        if entry.starts_with('=') {
            return format!("the entry {entry:?} has no key; write KEY=VALUE,KEY=VALUE");
        }
        format!(
            "the entry {entry:?} has no `=`; write KEY=VALUE,KEY=VALUE, KEY= for an empty value, or \\, for a comma of a value"
        )
    })?;
    Ok(DescriptorArgument {
        text: text.to_owned(),
        pairs,
    })
}
