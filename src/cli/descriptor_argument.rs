//! Descriptors as people type them: `k=v,k=v`.
//!
//! What it deliberately does not do: quote. A key cannot hold `=` or `,` here, a value no `,`; `/json` can.

/// The entries of one descriptor, and how they were typed.
#[derive(Clone, Debug)]
pub(super) struct DescriptorArgument {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

/// A key without `=` has an empty value.
#[allow(clippy::unnecessary_wraps)] // the form that clap wants
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
