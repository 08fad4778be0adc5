#![doc = include_str!("../README.md")]

pub mod clock;
pub mod event_rate;
pub mod file_stamp;
pub mod key_map;
pub mod keyed_hash;
pub mod regular_file;
pub mod visible_text;
