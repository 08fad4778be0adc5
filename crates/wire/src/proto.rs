//! Generated protobuf types, under their package names (`proto/codegen` generates them).
//!
//! Only `grpc`, `xds`, the codec and files use them. Other modules have types of their own.
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
                include!("../../../proto/generated/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    include!("../../../proto/generated/envoy.extensions.common.ratelimit.v3.rs");
                }
            }
        }
    }
    pub mod service {
        pub mod rate_limit_quota {
            pub mod v3 {
                include!("../../../proto/generated/envoy.service.rate_limit_quota.v3.rs");
            }
        }
        pub mod ratelimit {
            pub mod v3 {
                include!("../../../proto/generated/envoy.service.ratelimit.v3.rs");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            include!("../../../proto/generated/envoy.r#type.v3.rs");
        }
    }
}

pub mod kuadrant {
    pub mod service {
        pub mod ratelimit {
            pub mod v1 {
                include!("../../../proto/generated/kuadrant.service.ratelimit.v1.rs");
            }
        }
    }
}

pub mod tollgate {
    pub mod v1 {
        include!("../../../proto/generated/tollgate.v1.rs");
    }
    pub mod snapshot {
        pub mod v1 {
            include!("../../../proto/generated/tollgate.snapshot.v1.rs");
        }
    }
    pub mod recording {
        pub mod v1 {
            include!("../../../proto/generated/tollgate.recording.v1.rs");
        }
    }
}

/// The types of xDS. They share packages with the others, and are not published.
pub mod xds {
    pub mod envoy {
        pub mod config {
            pub mod core {
                pub mod v3 {
                    include!("../../../proto/generated/xds/envoy.config.core.v3.rs");
                }
            }
        }
        pub mod service {
            pub mod discovery {
                pub mod v3 {
                    include!("../../../proto/generated/xds/envoy.service.discovery.v3.rs");
                }
            }
        }
    }

    pub mod google {
        pub mod rpc {
            include!("../../../proto/generated/xds/google.rpc.rs");
        }
    }

    pub mod ratelimit {
        pub mod config {
            pub mod ratelimit {
                pub mod v3 {
                    include!("../../../proto/generated/xds/ratelimit.config.ratelimit.v3.rs");
                }
            }
        }
    }
}

/// File descriptors of all of `proto/`, with Envoy's own types: reflection publishes them and
/// `/json` follows them.
pub const PUBLISHED_DESCRIPTORS: &[u8] =
    include_bytes!("../../../proto/generated/published_descriptors.bin");
