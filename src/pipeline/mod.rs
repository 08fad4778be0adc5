//! The decision pipeline: what happens to one request, in the order it happens.
//!
//! Decode, plan, apply, decide, encode. A request keeps one generation of rules from its beginning
//! to its end. The only wait is the store's, under the caller's deadline; a request that matches no
//! limit does not wait at all.

pub mod decode;
pub mod dynamic_metadata;
pub mod encode;
pub mod generation;
pub mod headers;
pub mod message;
pub mod over_limit;
pub mod rate_limit;

pub use self::generation::{Generation, Generations};
pub use self::headers::Headers;
