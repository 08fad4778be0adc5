//! The generated protobuf types of xDS, under their package names (`build.rs` makes them from
//! `proto/`).
//!
//! Only this folder uses them, and tests that act as the server.
#![allow(missing_docs, unreachable_pub, clippy::pedantic)] // generated

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!(concat!(env!("OUT_DIR"), "/xds/envoy.config.core.v3.rs"));
            }
        }
    }
    pub mod service {
        pub mod discovery {
            pub mod v3 {
                include!(concat!(
                    env!("OUT_DIR"),
                    "/xds/envoy.service.discovery.v3.rs"
                ));
            }
        }
    }
}

pub mod google {
    pub mod rpc {
        include!(concat!(env!("OUT_DIR"), "/xds/google.rpc.rs"));
    }
}

pub mod ratelimit {
    pub mod config {
        pub mod ratelimit {
            pub mod v3 {
                include!(concat!(
                    env!("OUT_DIR"),
                    "/xds/ratelimit.config.ratelimit.v3.rs"
                ));
            }
        }
    }
}
