#!/usr/bin/env bash
# Builds dist/slogate.wasm and its SHA-256, with the vocabulary of DeepSeek-V4 compiled in.
#   scripts/build.sh [--vocabulary FILE]... [--no-vocabulary]
#     --vocabulary FILE    compile this one in too (made by the example slogate-vocabulary of the
#                          policy crate, and named like the vocabulary it holds)
#     --no-vocabulary      none at all: every count is an estimate, and nothing is fetched
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
vocabularies=()
exact=true
while [[ $# -gt 0 ]]; do
  case $1 in
    --vocabulary)
      [[ "${2:-}" == *.vocab && -f "$2" ]] || die "--vocabulary needs a .vocab file, not '${2:-}'"
      vocabularies+=("$(cd "$(dirname "$2")" && pwd)/$(basename "$2")")
      shift
      ;;
    --no-vocabulary) exact=false ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; die "no option '$1'" ;;
  esac
  shift
done
cd "$ROOT"
need_rust
ensure_target "$WASM_TARGET"

features=()
if $exact; then
  vocabularies+=("$(deepseek_vocabulary)")
  # A folder of what goes in, left as it is where nothing changed: cargo compares times.
  export SLOGATE_VOCABULARIES="$TARGET/vocabularies"
  mkdir -p "$SLOGATE_VOCABULARIES"
  for old in "$SLOGATE_VOCABULARIES"/*.vocab; do
    [[ " ${vocabularies[*]##*/} " == *" ${old##*/} "* ]] || rm -f "$old"
  done
  for new in "${vocabularies[@]}"; do
    cmp -s "$new" "$SLOGATE_VOCABULARIES/${new##*/}" || cp "$new" "$SLOGATE_VOCABULARIES/"
  done
  features=(--features vocab-deepseek-v4)
fi

# The module says at start-up which commit it is; outside a checkout it says "unknown".
hash=unknown
if command -v git >/dev/null 2>&1 && git rev-parse --git-dir >/dev/null 2>&1; then
  hash=$(git rev-parse --short=12 HEAD)
  [[ -z "$(git status --porcelain --untracked-files=no)" ]] || hash="$hash-dirty"
fi
SLOGATE_GIT_HASH=$hash cargo build --package slogate-plugin --release --target "$WASM_TARGET" --locked \
  ${features[@]+"${features[@]}"} >&2

mkdir -p dist
# Renamed into place: an Envoy that starts meanwhile reads the old module or the new one, not half.
cp "$TARGET/$WASM_TARGET/release/slogate.wasm" dist/slogate.wasm.new
mv dist/slogate.wasm.new dist/slogate.wasm
(
  cd dist
  if command -v sha256sum >/dev/null 2>&1; then sha256sum slogate.wasm; else shasum -a 256 slogate.wasm; fi
) >dist/slogate.wasm.sha256
printf 'dist/slogate.wasm  %s bytes  %s  %s\n' "$(wc -c <dist/slogate.wasm | tr -d ' ')" "$hash" "$(cut -c1-64 dist/slogate.wasm.sha256)"
