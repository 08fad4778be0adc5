#!/bin/sh
# Generates the protobuf code into the folder $1; default: internal/pb.
# It needs Go, and PYTHON: a python3 with grpcio-tools 1.76.0.
set -eu
cd "$(dirname "$0")"
out=${1:-internal/pb}
protos=${TOLLGATE_PROTOS:-../..}
python=${PYTHON:-python3}
plugin=$(mktemp -d)
trap 'rm -rf "$plugin"' EXIT
go build -C tools -o "$plugin/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
module=github.com/tollgate-limits/tollgate-go/internal/pb
mkdir -p "$out"
"$python" -m grpc_tools.protoc \
  -I "$protos" \
  --plugin="protoc-gen-go=$plugin/protoc-gen-go" \
  --go_out="$out" \
  --go_opt="module=$module" \
  --go_opt="Mproto/tollgate/v1/rate_limits.proto=$module/tollgatev1" \
  --go_opt="Mclients/proto/rls.proto=$module/rlsv3" \
  proto/tollgate/v1/rate_limits.proto clients/proto/rls.proto
