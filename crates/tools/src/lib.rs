#![doc = include_str!("../README.md")]
#![allow(missing_docs)] // no program outside this workspace uses it

pub mod convert;
pub mod recording;
pub mod replay;
pub mod rule_tests;
