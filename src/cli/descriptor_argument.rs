//! Descriptors on the command line: `key=value,key=value`.
//!
//! What it deliberately does not do: quoting. Here a key cannot hold `=` or `,`, and a value no
//! `,`; `/json` has no such limit.

/// One descriptor, as typed and as entries.
#[derive(Clone, Debug)]
pub(super) struct DescriptorArgument {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

/// Parses a descriptor. An entry without `=`, which is often a typing error, is refused: with an
/// empty value it would ask about another descriptor.
pub(super) fn parse_descriptor(text: &str) -> Result<DescriptorArgument, String> {
    let pairs = text.split(',').map(|entry| match entry.split_once('=') {
        None => Err(format!(
            "the entry {entry:?} has no `=`; write KEY=VALUE,KEY=VALUE, or KEY= for an empty value"
        )),
        Some(("", _)) => Err(format!(
            "the entry {entry:?} has no key; write KEY=VALUE,KEY=VALUE"
        )),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
    });
    Ok(DescriptorArgument {
        text: text.to_owned(),
        pairs: pairs.collect::<Result<_, _>>()?,
    })
}
