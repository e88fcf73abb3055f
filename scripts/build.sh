#!/usr/bin/env bash
# Builds dist/slogate.wasm and its SHA-256.
#   scripts/build.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
[[ $# -eq 0 ]] || die "usage: scripts/build.sh"
cd "$ROOT"
need_rust
ensure_target "$WASM_TARGET"

# The module says at start-up which commit it is; outside a checkout it says "unknown".
hash=unknown
if command -v git >/dev/null 2>&1 && git rev-parse --git-dir >/dev/null 2>&1; then
  hash=$(git rev-parse --short=12 HEAD)
  [[ -z "$(git status --porcelain --untracked-files=no)" ]] || hash="$hash-dirty"
fi
SLOGATE_GIT_HASH=$hash cargo build --package slogate-plugin --release --target "$WASM_TARGET" --locked >&2

mkdir -p dist
# Renamed into place: an Envoy that starts meanwhile reads the old module or the new one, not half.
cp "$TARGET/$WASM_TARGET/release/slogate.wasm" dist/slogate.wasm.new
mv dist/slogate.wasm.new dist/slogate.wasm
(
  cd dist
  if command -v sha256sum >/dev/null 2>&1; then sha256sum slogate.wasm; else shasum -a 256 slogate.wasm; fi
) >dist/slogate.wasm.sha256
printf 'dist/slogate.wasm  %s bytes  %s  %s\n' "$(wc -c <dist/slogate.wasm | tr -d ' ')" "$hash" "$(cut -c1-64 dist/slogate.wasm.sha256)"
