//! Buckets in Redis or Valkey, shared between replicas.
//!
//! | folder | what |
//! | --- | --- |
//! | `script` | the one atomic step: every algorithm in Lua, how a check is asked and how its outcome is read |

pub mod script;
