//! Generated protobuf types, under their package names (`build.rs` generates them from `proto/`).
//!
//! What it deliberately does not do: leave `grpc`, `rules/xds` and the codec. Other modules use
//! their own types.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::large_enum_variant,
    clippy::pedantic
)] // generated

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
        pub mod rate_limit_quota {
            pub mod v3 {
                tonic::include_proto!("envoy.service.rate_limit_quota.v3");
            }
        }
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

pub mod kuadrant {
    pub mod service {
        pub mod ratelimit {
            pub mod v1 {
                tonic::include_proto!("kuadrant.service.ratelimit.v1");
            }
        }
    }
}

pub mod tollgate {
    pub mod v1 {
        tonic::include_proto!("tollgate.v1");
    }
    pub mod snapshot {
        pub mod v1 {
            tonic::include_proto!("tollgate.snapshot.v1");
        }
    }
    pub mod recording {
        pub mod v1 {
            tonic::include_proto!("tollgate.recording.v1");
        }
    }
}

/// File descriptors of all of `proto/`, with Envoy's own types: reflection publishes them and
/// `/json` follows them.
pub const PUBLISHED_DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/published_descriptors.bin"));
