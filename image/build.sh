#!/bin/sh
# Builds the static release binary and lays out beside it all that an image has: image/build.sh FOLDER [x86_64|aarch64]
#
# Why a script: the Dockerfile's build stage and `make image` run the same lines, so what is tested is what is shipped.
#
# Why these flags: without a libc in the image the binary needs its own (naming the target, be it the machine's own, keeps that
# flag away from build scripts and macros, which cannot be static); and no path of the machine that builds may be in it, or two
# machines build two binaries. `cargo auditable` puts the list of crates into it, which is its SBOM.
#
# What it deliberately does not do: choose a compiler (whoever wants the same bytes takes the same rustc), or cross-compile
# without root, since the linker of another machine comes from Debian.
set -eu

# Of cargo-auditable; it decides a few of the binary's bytes.
AUDITABLE=0.7.7

cd "$(dirname "$0")/.."
out=$1
here=$(uname -m)
arch=${2:-$here}
target=$arch-unknown-linux-gnu
# cargo hashes into the binary where cargo-auditable lies: who builds in two folders says one for both.
tools=${TOOLS:-$PWD/target/tools}
cargo_home=${CARGO_HOME:-$HOME/.cargo}

if [ "$arch" != "$here" ]; then
  package=gcc-$(echo "$arch" | tr _ -)-linux-gnu
  command -v "$arch-linux-gnu-gcc" >/dev/null || {
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package" \
      "libc6-dev-$(echo "$arch" | sed 's/x86_64/amd64/; s/aarch64/arm64/')-cross" >/dev/null
  }
  rustup target add "$target"
  export "CARGO_TARGET_$(echo "$target" | tr a-z- A-Z_)_LINKER=$arch-linux-gnu-gcc"
fi

# The allocator is built by its own configure and make, which the compiler's slim image does not have.
command -v make >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends make >/dev/null; }
# Kernels of arm64 have pages of 4, 16 or 64 KiB; the allocator works with pages up to those it is built for.
if [ "$arch" = aarch64 ]; then
  export JEMALLOC_SYS_WITH_LG_PAGE=16
fi

[ -e "$tools/.auditable-$AUDITABLE" ] || {
  CARGO_TARGET_DIR=target/auditable cargo install --quiet --locked --force --version "=$AUDITABLE" --root "$tools" cargo-auditable
  rm -rf target/auditable
  touch "$tools/.auditable-$AUDITABLE"
}

# Separated by what no path has in it; what compiles C takes quotes instead.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\037%s\037%s' \
  -Ctarget-feature=+crt-static "--remap-path-prefix=$PWD=/src" "--remap-path-prefix=$cargo_home=/cargo")
CFLAGS="'-ffile-prefix-map=$PWD=/src' '-ffile-prefix-map=$cargo_home=/cargo'"
CC_SHELL_ESCAPED_FLAGS=1
# The allocator says when it was compiled.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
# The commit that `tollgate --version` shows. It is not read from .git, or a build without .git would have other bytes.
TOLLGATE_COMMIT=${TOLLGATE_COMMIT:-}
export TOLLGATE_COMMIT CARGO_ENCODED_RUSTFLAGS CFLAGS CC_SHELL_ESCAPED_FLAGS SOURCE_DATE_EPOCH
PATH=$tools/bin:$PATH cargo auditable build --profile dist --locked --bin tollgate --target "$target" --target-dir target/static

rm -rf "$out"
install -D -m 755 "target/static/$target/dist/tollgate" "$out/usr/bin/tollgate"
# Where the reference service's image has its binary.
install -d -m 755 "$out/bin"
ln -s ../usr/bin/tollgate "$out/bin/ratelimit"
# The authorities that an xDS server or a Redis is believed by where none are named.
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/ca-certificates.crt"
