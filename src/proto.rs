//! The generated protobuf types, under their package names (`build.rs` makes them from `proto/`).
//!
//! What this deliberately does not do: leave this room. Other rooms speak our words, which `wire` turns these into.
#![allow(missing_docs, unreachable_pub, clippy::pedantic)] // generated

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                tonic::include_proto!("envoy.config.core.v3");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    tonic::include_proto!("envoy.extensions.common.ratelimit.v3");
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                tonic::include_proto!("envoy.service.ratelimit.v3");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            tonic::include_proto!("envoy.r#type.v3");
        }
    }
}

/// The descriptors of all of `proto/`, with Envoy's own types: what reflection publishes and `/json` follows.
pub const PUBLISHED_DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/published_descriptors.bin"));
