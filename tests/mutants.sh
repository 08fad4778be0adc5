#!/bin/sh
# Mutation score: mutants.sh CARGO_MUTANTS SAMPLE
#
# All mutants of crates/limiter against its laws, and a sample of SAMPLE mutants each of the memory store and the pipeline
# against the unit tests and the tests in process. cargo-mutants shards its list: one shard of the right size is the
# sample, and the same list gives the same sample.
set -eu
mutants=$1 sample=$2
cd "$(dirname "$0")/.."
out=target/mutants
mkdir -p "$out"

"$mutants" mutants --package tollgate-limiter --output "$out/limiter" -- --locked || [ $? -le 3 ]
for part in crates/store/src/memory crates/engine/src/pipeline; do
  all=$("$mutants" mutants --workspace --file "$part/**/*.rs" --list | wc -l)
  shards=$((all / sample))
  [ "$shards" -ge 1 ] || shards=1
  "$mutants" mutants --workspace --file "$part/**/*.rs" --shard "0/$shards" --output "$out/${part##*/}" --test-workspace true \
    -- --locked --lib --test in_process || [ $? -le 3 ]
done
for part in "$out"/*/mutants.out; do
  # The last line says how many were caught and missed.
  echo "$part: $(wc -l <"$part/caught.txt") caught, $(wc -l <"$part/missed.txt") missed, $(wc -l <"$part/timeout.txt") timed out"
done
