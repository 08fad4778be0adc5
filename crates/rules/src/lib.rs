#![doc = include_str!("../README.md")]

pub mod calendar;
pub mod duration;
pub mod excerpt;
pub mod file;
pub mod path;
pub mod patterns;
pub mod reload;
pub mod requests;
pub mod yaml;
