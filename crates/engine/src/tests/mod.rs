//! Tests of the engine as a whole.

mod lease_model;
