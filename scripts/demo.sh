#!/usr/bin/env bash
# Shows one overload twice: two simulated vLLM clusters behind Envoy, without and with slogate.
# Needs rustup, Python 3 and curl; fetches the rest. Under two minutes once it is built.
#   scripts/demo.sh [--seconds N] [--overload X] [--free-ports] [--keep]
#     --seconds N     length of each run (default 15)
#     --overload X    load as a multiple of what the engine can do (default 1.3)
#     --free-ports    any free ports instead of the ones in envoy/envoy.yaml
#     --keep          leave the arm with slogate running until Ctrl-C
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

seconds=15
overload=1.3
keep=false
gate_port=10000
admin_port=9901
engine_ports=(8001 8002)

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; }
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds) seconds=${2:-}; shift ;;
    --overload) overload=${2:-}; shift ;;
    --free-ports) read -r gate_port admin_port engine_ports[0] engine_ports[1] < <(free_ports 4) ;;
    --keep) keep=true ;;
    -h | --help) usage; exit ;;
    *) usage; die "no option '$1'" ;;
  esac
  shift || die "the last option needs a value"
done
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || die "--seconds needs a whole number above 0, not '$seconds'"
[[ "$overload" =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--overload needs a number such as 1.3, not '$overload'"

# --- What the demo needs

need_rust
need_python
need curl "Install curl (Debian, Ubuntu: apt-get install curl)."
for port in "$gate_port" "$admin_port" "${engine_ports[@]}"; do
  port_is_free "$port" || die "port $port is in use. Stop what listens there, or run scripts/demo.sh --free-ports"
done
envoy=$(envoy_binary)
say "building (some minutes the first time)"
scripts/build.sh >&2
cargo build --quiet --locked --package slogate-integration --profile tools --bins >&2
tools="$TARGET/tools"

# --- Whatever is started ends with this script

work=$(mktemp -d)
pids=()
cleanup() {
  local pid
  # Engines wait for nothing and Envoy has nothing to save.
  {
    for pid in "${pids[@]}"; do kill -KILL "$pid" || true; done
    wait || true
  } 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

started=0
# start NAME COMMAND...: in the background; its number is in $started.
start() {
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  started=$!
  pids+=("$started")
}

# ready NAME URL: waits until it serves, or shows why it does not.
ready() {
  wait_for_url "$2" 20 || {
    tail -n 20 "$work/$1.log" >&2
    die "$1 did not start"
  }
}

# --- Two engines
# 16 sequences at once, 5 ms a token: a short request (24 tokens out) takes 120 ms, a long one
# (64 out, about 5,000 in) a third of a second. Together that is about CAPACITY requests a second.
CAPACITY=80
names=(deepseek-v4 deepseek-coder-lite)
for i in 0 1; do
  start "engine-$i" "$tools/vllm-sim" --port "${engine_ports[i]}" --served-model-name "${names[i]}" \
    --max-num-seqs 16 --max-num-batched-tokens 8192 --decode-ms 5 --prefill-us 1 --tokens quarter \
    --enable-per-request-metrics
done
for i in 0 1; do ready "engine-$i" "http://127.0.0.1:${engine_ports[i]}/health"; done

# --- One run of the load
rate=$(python3 -c "print(round($CAPACITY * $overload, 1))")
places=(
  --listen "127.0.0.1:$gate_port" --admin "127.0.0.1:$admin_port"
  --cluster "vllm_deepseek_v4=127.0.0.1:${engine_ports[0]}"
  --cluster "vllm_deepseek_coder=127.0.0.1:${engine_ports[1]}"
)
# The shipped policy, with the number of requests that this small engine runs at once.
"$tools/slogate-bootstrap" >"$work/shipped.json"
python3 - "$work/shipped.json" >"$work/policy.json" <<'PY'
import json, sys
manager = json.load(open(sys.argv[1]))["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
filters = manager["typed_config"]["http_filters"]
policy = next(f for f in filters if f["name"] == "slogate")["typed_config"]["config"]["configuration"]["value"]
policy["models"][0]["max_in_flight"] = 16
# The shipped 30 s outlast the demo: nobody would be refused.
policy["tiers"][2]["queue"]["max_wait"] = "3s"
json.dump(policy, sys.stdout)
PY

# arm NAME OPTION...: starts Envoy with these options of slogate-bootstrap and runs the load.
arm() {
  local name=$1
  shift
  "$tools/slogate-bootstrap" "${places[@]}" --access-log "$work/$name-access.log" "$@" >"$work/$name.json"
  start "envoy-$name" "$envoy" --config-path "$work/$name.json" --disable-hot-restart --concurrency 2 \
    --log-level warning --file-flush-interval-msec 100
  ready "envoy-$name" "http://127.0.0.1:$admin_port/ready"
  say "$name slogate: $rate requests/s for $seconds s"
  "$tools/slogate-load" --target "http://127.0.0.1:$gate_port" --rate "$rate" --duration "${seconds}s" \
    --tokens quarter --json "$work/$name-report.json" \
    --mix name=realtime,share=0.7,key=demo-realtime,model=deepseek-v4,prompt=50-200,output=24 \
    --mix name=economy,share=0.3,key=demo-economy,model=deepseek-v4,prompt=4500-6000,output=64 \
    >"$work/$name-table.txt" || {
    tail -n 20 "$work/envoy-$name.log" >&2
    die "the load did not run"
  }
}

arm without --without-filter vllm_deepseek_v4
{
  kill -KILL "$started"
  wait "$started" || true
} 2>/dev/null
unset 'pids[-1]' # its number may be another's by the end
arm with --wasm "$ROOT/dist/slogate.wasm" --policy "$work/policy.json"

# --- What came of it
printf '\nThe same load (70 %% short realtime requests, 30 %% long ones of economy), %s times what the engine can do\n\n' "$overload"
"$tools/slogate-load" compare "$work/without-report.json" "$work/with-report.json" --label without --label with

url="http://127.0.0.1:$gate_port/v1/chat/completions"
body='{"model":"deepseek-v4","max_tokens":24,"messages":[{"role":"user","content":"Hello"}]}'
printf '\n$ curl -i -H "authorization: Bearer demo-realtime" -H "content-type: application/json" -d '\''%s'\'' %s\n' "$body" "$url"
curl --noproxy '*' --silent --show-error --max-time 10 --dump-header - --output /dev/null \
  -H 'authorization: Bearer demo-realtime' -H 'content-type: application/json' -d "$body" "$url" | tr -d '\r'
printf '$ curl -s http://127.0.0.1:%s/stats | grep slogate_requests\n' "$admin_port"
curl --noproxy '*' --silent "http://127.0.0.1:$admin_port/stats" | grep 'slogate_requests' | grep -v ': 0$' || true
printf '\nThe last line of the access log\n'
sleep 0.3 # Envoy writes it every 0.1 s
tail -n 1 "$work/with-access.log"

if $keep; then
  printf '\nEnvoy listens on 127.0.0.1:%s, its admin endpoint on 127.0.0.1:%s. Ctrl-C ends it.\n' "$gate_port" "$admin_port"
  while sleep 1; do :; done
fi
