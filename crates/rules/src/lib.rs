#![doc = include_str!("../README.md")]

pub mod calendar;
pub mod duration;
pub mod excerpt;
pub mod file;
pub mod isolation;
pub mod path;
pub mod patterns;
pub mod refused_domain;
pub mod reload;
pub mod requests;
pub mod update;
pub mod yaml;
