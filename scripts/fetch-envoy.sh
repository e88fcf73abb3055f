#!/usr/bin/env bash
# Prints the path of an Envoy binary, fetching it into .tools/ when it is not there yet.
#   scripts/fetch-envoy.sh [version]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
[[ "${1:-}" != -* ]] || die "usage: scripts/fetch-envoy.sh [version]"
envoy_binary "$@"
