#!/bin/sh
# Runs a command beside as many busy loops as there are cores: beside_busy_loops.sh COMMAND...
#
# The loops end with this script, whether the command passes, fails or is interrupted.
set -u
loops=
stop() {
  # shellcheck disable=SC2086 # a list of process ids
  [ -z "$loops" ] || kill $loops 2>/dev/null
  loops=
}
trap stop EXIT
trap 'exit 130' INT TERM
for _ in $(seq "$(nproc)"); do
  sh -c "while kill -0 $$ 2>/dev/null; do i=0; while [ \$i -lt 100000 ]; do i=\$((i + 1)); done; done" &
  loops="$loops $!"
done
"$@"
