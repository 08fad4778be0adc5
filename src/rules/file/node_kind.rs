//! What a YAML node is, in words.

use crate::rules::yaml::{Content, Node};

/// What a node is, for messages.
pub(crate) fn kind(node: &Node) -> &'static str {
    match &node.content {
        _ if node.is_null() => "nothing",
        Content::Mapping(_) => "a mapping",
        Content::Sequence(_) => "a list",
        Content::Scalar { plain: false, .. } => "text in quotes",
        Content::Scalar { .. } if node.boolean().is_some() => "a boolean",
        Content::Scalar { .. } if node.number().is_some() => "a number",
        Content::Scalar { .. } => "text",
    }
}
