//! The gRPC server: ShouldRateLimit straight from a connection's bytes.
//!
//! Why: a check is decided in a fraction of a microsecond, and a task, a boxed future, a header map and a flush for each
//! cost twenty times that. How: one runtime a core; a connection stays on its core; one turn of a connection takes up all
//! calls that have arrived, one message a partition carries their checks, and one write sends their answers
//! ([`connection`], [`core`]). HTTP/2 is spoken by hand ([`http2`]), requests are read from their bytes and answers written
//! into theirs ([`read`], [`write`]).
//!
//! What it takes is what it is sure of: a call of ShouldRateLimit whose message came whole, uncompressed and in one frame,
//! and that protobuf's plainest rules read. All else goes to the routes of tonic ([`forward`]): health, reflection, odd
//! frames, broken messages. So there is one place that says what is wrong with a request. A client cannot tell which of the two
//! answered: `tests/service/door` sends the same requests to this server and to tonic's routes.
//!
//! What it deliberately does not do: decide (`ratelimit`), accept connections or bound them (`accept`), speak of anything
//! but this one call.

#[cfg(any(test, fuzzing))]
pub mod agreement;
#[cfg(test)]
mod allocations;
mod buffers;
#[doc(hidden)]
pub mod by_hand;
mod connection;
mod connection_limits;
mod context;
mod core;
mod cores;
mod forward;
mod http2;
#[cfg(fuzzing)]
pub use self::http2::withstand;
mod minder;
mod read;
mod respond;
mod write;
mod yielding;

pub(super) use self::connection_limits::ConnectionLimits;
pub(super) use self::context::ServerContext;
pub(super) use self::cores::Cores;
pub(super) use self::http2::BodyBudget;
pub(super) use self::write::write;
