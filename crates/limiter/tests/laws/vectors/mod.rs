//! Tables worked out by hand from what the reference service does. Each row has its derivation.
//!
//! Why: a model and the real algorithm can both be wrong about what Envoy's users expect. These
//! rows are what they expect, in figures that a reader can check by hand.
//!
//! What they deliberately do not do: random inputs, or cases that need a calculation of several
//! steps.

mod algorithms;
mod calendars;
mod clock;
mod counting;
mod grouped;
mod keys;
mod ledger;
mod limits;
mod marks;
mod modes;
mod overrides;
mod planning;
mod refused;
mod shared;
mod smooth;
mod sources;
mod starts_and_ends;
mod statuses;
mod tally;
mod undo;
