#!/usr/bin/env bash
# Measures in CPU time what the filter costs Envoy; run it on a quiet machine.
#   scripts/overhead.sh                the filter against the same Envoy without it (about 3 minutes)
#   scripts/overhead.sh count          the exact count against the estimate in the same filter
#   scripts/overhead.sh hostile        bodies of a megabyte that were made to be expensive
#   scripts/overhead.sh memory         size of the module, memory of its instances
# Options: [--rounds N] [--seconds S] [--bodies 200,8192] [--tokenizer NAME] [--json] ...; --help
# shows all. `count` makes its texts from word lists; --english and --chinese name files to cut
# them from instead.
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
