#![doc = include_str!("../README.md")]

use tollgate_rules as rules;
use tollgate_wire::proto;

pub mod recording;
