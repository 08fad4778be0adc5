#![doc = include_str!("../README.md")]

pub mod backlog;
pub mod clock;
pub mod event_rate;
pub mod keyed_hash;
pub mod per_thread;
pub mod regular_file;
pub mod visible_text;
