//! The JSON of the admin listener: one type for each response, written by `admin` and read by
//! `tollgate top`, `tap`, `reset`, `shadow` and `explain --last`.
//!
//! Why one module: server and commands cannot disagree about a field. `docs/admin.schema.json`
//! describes the same types for everybody else.
//!
//! Times are RFC 3339 in UTC with milliseconds. A field that does not apply is null, never absent,
//! except the fields that only candidates, reservations, costs, budgets and quotas have.
//!
//! What it deliberately does not do: read the values (`admin`, `top_keys`, `decisions`). `text` has
//! the texts that several of them share.

mod decisions;
mod keys;
mod limits;
mod requests;
mod state;
mod text;

pub use self::decisions::*;
pub use self::keys::*;
pub use self::limits::*;
pub use self::requests::*;
pub use self::state::*;
pub use self::text::*;
