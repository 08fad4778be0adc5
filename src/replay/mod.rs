//! Decides the requests of a recording again, by these rules or by those.
//!
//! What it deliberately does not do: read files of recordings (`recording`) or print (`cli`).

pub mod page;
pub mod report;
