//! The settings of top keys, and of values that are shown.
//!
//! What it deliberately does not do: read the file of the hash key (`app/hash_key`).

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::settings::headings::LOGS;
use crate::settings::parse::size_from;

/// Top keys, and how values of descriptors are shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = LOGS)]
pub struct TopKeysSettings {
    /// Count the keys with the most hits of each rule, and how their values are shown
    ///
    /// Values of descriptors are personal data. This also sets how the latest decisions show them
    /// on the admin listener.
    #[arg(
        id = "top_keys",
        long = "top-keys",
        env = "TOLLGATE_TOP_KEYS",
        default_value = "hashed",
        value_name = "VALUES"
    )]
    pub mode: TopKeysMode,

    /// Memory for top keys, of all worker threads together
    ///
    /// Rules and keys beyond it are counted together, and the error of their counts grows.
    ///
    /// Range: 1MiB to below 4GiB
    #[arg(id = "top_keys_memory_max", long = "top-keys-memory-max", env = "TOLLGATE_TOP_KEYS_MEMORY_MAX", default_value = "16MiB", value_parser = size_from(1 << 20, "use a number and MiB, such as 16MiB, from 1MiB to below 4GiB"), value_name = "BYTES")]
    pub memory_max: usize,

    /// File with the key that hashes shown values, at least 16 bytes; default: a random key
    ///
    /// With the same key on all replicas, they show the same hash for a value. Without this file,
    /// hashes change with each start.
    #[arg(long, env = "TOLLGATE_VALUE_HASH_KEY_FILE")]
    pub value_hash_key_file: Option<PathBuf>,
}

/// Whether top keys are counted, and how values are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TopKeysMode {
    /// Not counted; where decisions are shown, their values are hashed
    Off,
    /// As # and 16 hexadecimal digits of a keyed hash
    Hashed,
    /// As sent
    Plain,
}
