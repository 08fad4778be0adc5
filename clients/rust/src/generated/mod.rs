//! Generated from the proto files; `tests/generated.rs` writes it.

pub(crate) mod tollgate {
    #![allow(
        missing_docs,
        unreachable_pub,
        dead_code,
        clippy::all,
        clippy::pedantic
    )]
    include!("tollgate.v1.rs");
}

pub(crate) mod envoy {
    #![allow(
        missing_docs,
        unreachable_pub,
        dead_code,
        clippy::all,
        clippy::pedantic
    )]
    include!("tollgate.clients.rls.v3.rs");
}
