//! Generated protobuf types, under their package names (`proto/codegen` generates them).
//!
//! What it deliberately does not do: leave `grpc`, `xds` and the codec. Other modules use
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
                include!("../proto/generated/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    include!("../proto/generated/envoy.extensions.common.ratelimit.v3.rs");
                }
            }
        }
    }
    pub mod service {
        pub mod rate_limit_quota {
            pub mod v3 {
                include!("../proto/generated/envoy.service.rate_limit_quota.v3.rs");
            }
        }
        pub mod ratelimit {
            pub mod v3 {
                include!("../proto/generated/envoy.service.ratelimit.v3.rs");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            include!("../proto/generated/envoy.r#type.v3.rs");
        }
    }
}

pub mod kuadrant {
    pub mod service {
        pub mod ratelimit {
            pub mod v1 {
                include!("../proto/generated/kuadrant.service.ratelimit.v1.rs");
            }
        }
    }
}

pub mod tollgate {
    pub mod v1 {
        include!("../proto/generated/tollgate.v1.rs");
    }
    pub mod snapshot {
        pub mod v1 {
            include!("../proto/generated/tollgate.snapshot.v1.rs");
        }
    }
    pub mod recording {
        pub mod v1 {
            include!("../proto/generated/tollgate.recording.v1.rs");
        }
    }
}

/// File descriptors of all of `proto/`, with Envoy's own types: reflection publishes them and
/// `/json` follows them.
pub const PUBLISHED_DESCRIPTORS: &[u8] =
    include_bytes!("../proto/generated/published_descriptors.bin");
