#!/bin/sh
# Builds the Debian package: packaging/debian/build.sh CARGO_DEB [BINARY FOLDER]
#
# Without BINARY, it builds the release binary and writes the package to target/debian. With BINARY,
# it packages that file into FOLDER, with fast compression; the tests use this.
#
# The binary uses the system's libc, unlike the image's. A static one would load the machine's NSS
# modules into another libc when it looks up a host name.
set -eu

cargo_deb=$(realpath "$1")
binary=${2:-}
cd "$(dirname "$0")/../.."
folder=${3:-target/debian}
build=$folder/build

# Files have the time of the newest entry of the changelog, so that two builds are equal.
written=$(sed -n 's/^ -- .*>  //p' packaging/debian/changelog | head -n 1)
SOURCE_DATE_EPOCH=$(date --date "$written" +%s)
export SOURCE_DATE_EPOCH

if [ -z "$binary" ]; then
  # No path of this machine is in the binary.
  CARGO_ENCODED_RUSTFLAGS=$(printf '%s\037%s\037%s' "--remap-path-prefix=$PWD=/src" \
    "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
    "--remap-path-prefix=$(rustc --print sysroot)=/rust") \
    cargo build --profile dist --locked --bin tollgate --target-dir "$build"
  binary=$build/dist/tollgate fast=
else
  fast=--fast
fi
# Where cargo-deb looks for the file that Cargo.toml names.
mkdir -p "$build/release"
cp "$binary" "$build/release/tollgate"
CARGO_TARGET_DIR=$build "$cargo_deb" --no-build --locked --offline --strip $fast \
  --output "$folder/" ${DEB_MAINTAINER:+--maintainer "$DEB_MAINTAINER"}
