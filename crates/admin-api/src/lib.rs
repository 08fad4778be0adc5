#![doc = include_str!("../README.md")]
//!
//!
//! Times are RFC 3339 in UTC with milliseconds. A field that does not apply is null, never absent,
//! except the fields that only candidates, reservations, costs, budgets and quotas have.

mod decisions;
mod keys;
mod limits;
mod overrides;
mod requests;
mod state;
mod text;

pub use self::decisions::*;
pub use self::keys::*;
pub use self::limits::*;
pub use self::overrides::*;
pub use self::requests::*;
pub use self::state::*;
pub use self::text::*;

/// The JSON Schema of every request, response and event.
pub const SCHEMA: &str = include_str!("schema.json");
