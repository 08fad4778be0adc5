# An image with one static binary and the CA bundle that it trusts: no shell, no libc, and no account but a number.
#
#   docker build -t tollgate:0.1.0 .
#
# With files that `make image` has laid out in FOLDER/out in place of the build stage:
#
#   docker build -t tollgate:0.1.0 --build-context build=FOLDER .
#
# For amd64 and arm64 in one go, each compiled by a compiler of the machine that builds (docs/image.md):
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t tollgate:0.1.0 .
#
# What it deliberately does not do: emulate. A link of this binary under emulation takes hours.

# The version is Cargo.toml's rust-version.
FROM --platform=$BUILDPLATFORM rust:1.88-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY .cargo .cargo
COPY build build
COPY proto proto
COPY src src
COPY crates crates
# Cargo.toml names them; they are not built.
COPY benches benches
COPY tests/in_process.rs tests/in_process.rs
COPY tests/processes.rs tests/processes.rs
COPY tests/long.rs tests/long.rs
COPY tests/clients/main.rs tests/clients/main.rs
COPY tests/model tests/model
COPY tests/support tests/support
COPY image image
ARG TARGETARCH
ARG REVISION=""
ENV TOLLGATE_COMMIT=$REVISION
RUN image/build.sh /out "$(echo "$TARGETARCH" | sed 's/amd64/x86_64/; s/arm64/aarch64/')"

FROM scratch
ARG REVISION=""
LABEL org.opencontainers.image.title="tollgate" \
      org.opencontainers.image.description="A rate-limit decision service that speaks Envoy's protocol and needs no Redis to start" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/ /
USER 65532:65532
EXPOSE 8081 8080
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["serve"]
