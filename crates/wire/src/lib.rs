#![doc = include_str!("../README.md")]

pub mod fields;
pub mod proto;
pub mod protobuf_json;
pub mod put;
