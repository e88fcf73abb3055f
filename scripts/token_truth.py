#!/usr/bin/env python3
"""Model directory and comparison behind token-truth.sh.

`model` writes a model with random weights that has the real tokenizer: the engine renders and
counts a prompt as it would for the real one. `run` sends the requests of token_chats.py through the
gate and compares what the gate counted with what the engine says it used, in the same answer.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import sys
import urllib.parse

import token_chats

HEADER = "x-slogate-prompt-tokens"


def write_model(options):
    """A directory that vLLM loads with `--load-format dummy`."""
    folder = pathlib.Path(options.directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(pathlib.Path(options.tokenizer).read_bytes())
    begin, end = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": begin,
            "eos_token": end,
            "add_bos_token": False,
            "model_max_length": options.max_model_len,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        # The smallest that the engine's kernels take; the prompt's form depends on nothing of it.
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "hidden_act": "silu",
            "max_position_embeddings": options.max_model_len,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "vocab_size": 129280,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "bfloat16",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def write_policy(options):
    """The shipped policy, read from a bootstrap on stdin, with another tokenizer for the first model."""
    listener = json.load(sys.stdin)["static_resources"]["listeners"][0]
    filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    config = next(f for f in filters if f["name"] == "slogate")["typed_config"]["config"]
    policy = config["configuration"]["value"]
    policy["models"][0]["tokenizer"] = options.name
    # Counting may end above the largest bound, so one is set that no request passes.
    policy["size_classes"] = [{"name": "counted", "max_tokens": 100_000}, {"name": "beyond"}]
    json.dump(policy, sys.stdout)


def post(url, path, body, headers=()):
    """`(status, headers, body)` of a POST."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    try:
        head = {"content-type": "application/json", **dict(headers)}
        connection.request("POST", path, body.encode(), head)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def usage(stream, answer):
    """The engine's count of the prompt, from a whole answer or the last event that has one."""
    if not stream:
        told = json.loads(answer)["usage"]
        return told["prompt_tokens"] if "prompt_tokens" in told else told["input_tokens"]
    found = None
    for line in answer.decode("utf-8", errors="replace").splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(event["error"])
            found = event.get("usage") or found
    return found["prompt_tokens"]


def compare(options, request):
    """One request through the gate: what both counted, or why there is no figure."""
    kind, path, stream, body = request
    result = {"kind": kind, "path": path, "stream": stream, "body": body}
    key = {"authorization": f"Bearer {options.key}"}
    try:
        status, headers, answer = post(options.gate, path, body, key.items())
        result["status"] = status
        if status != 200:
            result["error"] = answer.decode("utf-8", errors="replace")[:300]
            return result
        result["engine"] = usage(stream, answer)
        result["gate"] = int(headers[HEADER])
    except Exception as error:  # whatever it is, it belongs to this request
        result["error"] = f"{type(error).__name__}: {error}"
    return result


def rendered(options, result):
    """The prompt as the engine made it, which it tells for chats."""
    if "chat" not in result["path"]:
        return None
    body = json.loads(result["body"])
    for field in ("stream", "stream_options"):
        body.pop(field, None)
    body["return_prompt_text"] = True
    status, _, answer = post(options.engine, result["path"], json.dumps(body))
    return json.loads(answer).get("prompt_text") if status == 200 else None


def shorten(text, limit=300):
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def send(options, requests, what):
    """All of them, four at a time, with their progress on a terminal."""
    results, live = [], sys.stderr.isatty()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda r: compare(options, r), requests):
            results.append(result)
            if live:
                print(f"\r{what}: {len(results)} of {len(requests)}", end="", file=sys.stderr, flush=True)
    if live:
        print("\r\033[K", end="", file=sys.stderr)
    return results


def table(kinds, results):
    """One row for each kind that was sent."""
    rows = collections.defaultdict(list)
    for result in results:
        rows[result["kind"]].append(result)
    for kind, group in [(kind, rows[kind]) for kind in kinds if rows[kind]] + [("all", results)]:
        good = [r for r in group if "gate" in r]
        off = [r["gate"] - r["engine"] for r in good]
        share = [abs(r["gate"] - r["engine"]) / max(1, r["engine"]) for r in good]
        figures = [r["engine"] for r in good] or [0]
        print(
            f"{kind:16} {len(group):5} {off.count(0):5} {len(group) - len(good):6} {max(off, key=abs, default=0):+8}"
            f" {100 * sum(share) / max(1, len(share)):7.2f}   {min(figures)}-{max(figures)}"
        )


def run(options):
    """Prints the comparison; 1 if a request failed or a count differs that must not."""
    chats = send(options, token_chats.requests(options.count, options.seed), "requests")
    others = token_chats.requests(options.count // 10, options.seed, token_chats.OTHER_FORMS)
    others = send(options, others, "other forms")

    print(f"{'kind':16} {'count':>5} {'equal':>5} {'failed':>6} {'largest':>8} {'mean %':>7}   tokens")
    table(token_chats.KINDS, chats)
    print("other forms of a chat, which need not be equal")
    table(token_chats.OTHER_FORMS, others)

    wrong = [r for r in chats + others if "gate" not in r or r["gate"] != r["engine"]]
    with open(options.out, "w", encoding="utf-8") as out:
        for result in wrong:
            result["prompt"] = rendered(options, result)
            out.write(json.dumps(result, ensure_ascii=False) + "\n")
    for result in wrong[: options.show]:
        figures = result.get("error") or f"gate {result['gate']}, engine {result['engine']}"
        stream = " (stream)" if result["stream"] else ""
        print(f"\n{result['kind']}{stream}: {figures}\n  {shorten(result['body'])}")
    if wrong:
        print(f"\n{len(wrong)} differ; all of them, with the engine's prompt, are in {options.out}")
    failed = any("gate" not in result for result in chats + others)
    unequal = any(result["gate"] != result["engine"] for result in chats if "gate" in result)
    return 1 if failed or (unequal and options.must_equal) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    model = commands.add_parser("model")
    model.add_argument("directory")
    model.add_argument("--tokenizer", required=True)
    model.add_argument("--max-model-len", type=int, required=True)
    policy = commands.add_parser("policy")
    policy.add_argument("name")
    running = commands.add_parser("run")
    running.add_argument("--gate", required=True)
    running.add_argument("--engine", required=True)
    running.add_argument("--key", required=True)
    running.add_argument("--count", type=int, required=True)
    running.add_argument("--seed", type=int, required=True)
    running.add_argument("--show", type=int, default=5)
    running.add_argument("--out", required=True)
    running.add_argument("--must-equal", action="store_true")
    options = parser.parse_args()
    if options.command == "model":
        write_model(options)
    elif options.command == "policy":
        write_policy(options)
    else:
        sys.exit(run(options))


if __name__ == "__main__":
    main()
