#!/usr/bin/env bash
# Measures what the filter costs Envoy in CPU time, against the same Envoy without it.
# Takes about two and a half minutes; run it on a quiet machine.
#   scripts/overhead.sh [--rounds N] [--seconds S] [--bodies 200,8192] [--json] ...
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"
need_rust
SLOGATE_ENVOY=$(envoy_binary)
export SLOGATE_ENVOY
scripts/build.sh >&2
cargo build --locked --package slogate-integration --profile tools --bin overhead >&2
exec "$TARGET/tools/overhead" "$@"
