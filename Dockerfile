# An image with one static binary and nothing else: no shell, no libc, no account but a number.
#
#   docker build -t tollgate:0.1.0 .
#
# With a binary built elsewhere in place of the build stage, in FOLDER/out as the last lines of that stage lay it out:
#
#   docker build -t tollgate:0.1.0 --build-context build=FOLDER .
#
# What it deliberately does not do: cross-compile (a platform's image is built on that platform), or bring authorities; name
# those of Redis and of an xDS server (REDIS_TLS_CACERT, CONFIG_GRPC_XDS_SERVER_TLS_CACERT).

# The version is Cargo.toml's rust-version.
FROM rust:1.88-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
COPY src src
# Cargo.toml names it; it is not built.
COPY benches benches
# Naming the target, the machine's own, keeps the flag away from build scripts and macros, which cannot be static.
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --bin tollgate --target "$target" \
 && install -D "target/$target/release/tollgate" /out/usr/bin/tollgate \
 && install -d /out/bin \
 && ln -s ../usr/bin/tollgate /out/bin/ratelimit

FROM scratch
# /bin/ratelimit is where the reference service's image has its binary.
COPY --from=build /out/ /
# Where the host gives every process huge pages: 15 MB less, and no check the slower.
ENV MIMALLOC_ALLOW_THP=0
USER 65532:65532
EXPOSE 8081 8080
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["serve"]
