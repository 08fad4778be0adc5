#!/bin/sh
# Names what is to be filled in before a publication, and fails while there is any: release_check.sh [FOLDER]
#
# CONTRIBUTING.md says what each is.
cd "${1:-$(dirname "$0")/..}" || exit 2
left=$(
  grep -HnE 'tollgate\.example|@packages\.invalid' Cargo.toml helm/tollgate/Chart.yaml packaging/debian/changelog \
    clients/java/pom.xml clients/node/package.json clients/python/pyproject.toml clients/rust/Cargo.toml tests/client_packages/common.py
  grep -qE '^ +(email|url): ' helm/tollgate/Chart.yaml || echo 'helm/tollgate/Chart.yaml: a maintainer without an address'
  grep -qE 'mailto:|https://' SECURITY.md || echo 'SECURITY.md: no address for reports'
)
[ -z "$left" ] && exit 0
printf 'fill in before a publication (CONTRIBUTING.md, "A release"):\n%s\n' "$left" >&2
exit 1
