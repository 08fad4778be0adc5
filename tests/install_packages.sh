#!/bin/sh
# Installs Debian packages in one go, if their programs are missing: install_packages.sh PROGRAM:PACKAGE... PACKAGE...
set -u
missing=
for entry in "$@"; do
  program=${entry%%:*} package=${entry#*:}
  if [ "$program" = "$package" ] && [ "$program" = "$entry" ]; then
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' && continue
  else
    command -v "$program" >/dev/null && continue
  fi
  missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing$missing"
# shellcheck disable=SC2086 # a list of words
{ [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; } || {
  echo "they could not be installed; run: sudo apt-get install --no-install-recommends$missing"
  exit 1
}
