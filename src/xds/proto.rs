//! The generated protobuf types of xDS, under their package names (`proto/codegen`
//! generates them).
//!
//! Only this folder uses them, and tests that act as the server.
#![allow(missing_docs, unreachable_pub, clippy::pedantic)] // generated

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!("../../proto/generated/xds/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod service {
        pub mod discovery {
            pub mod v3 {
                include!("../../proto/generated/xds/envoy.service.discovery.v3.rs");
            }
        }
    }
}

pub mod google {
    pub mod rpc {
        include!("../../proto/generated/xds/google.rpc.rs");
    }
}

pub mod ratelimit {
    pub mod config {
        pub mod ratelimit {
            pub mod v3 {
                include!("../../proto/generated/xds/ratelimit.config.ratelimit.v3.rs");
            }
        }
    }
}
