//! Descriptors on the command line: `k=v,k=v`.
//!
//! What it deliberately does not do: quoting. Here a key cannot hold `=` or `,`, and a value no
//! `,`; `/json` has no such limit.

/// One descriptor, as typed and as entries.
#[derive(Clone, Debug)]
pub(super) struct DescriptorArgument {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

/// Parses a descriptor. A key without `=` has an empty value.
#[allow(clippy::unnecessary_wraps)] // clap requires a Result
pub(super) fn parse_descriptor(text: &str) -> Result<DescriptorArgument, std::convert::Infallible> {
    let pairs = text
        .split(',')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(DescriptorArgument {
        text: text.to_owned(),
        pairs: pairs.collect(),
    })
}
