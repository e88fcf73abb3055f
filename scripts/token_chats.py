"""The requests of token-truth.sh: generated from a seed, so that every run sends the same ones.

Each kind of chat stands for a way in which a prompt is put together. The texts are made of word
lists; they have to be varied for a tokenizer, not to be read. The body is written by hand, because
a client may write the same JSON in many ways and the count must not depend on which.
"""

import json
import random
import string

ENGLISH = """a an the of and to in is that it for was on are with as his they be at one have this from
or had by hot word but what some we can out other were all there when up use your how said each she
which do their time if will way about many then them write would like so these her long make thing see
him two has look more day could go come did number sound no most people my over know water than call
first who may down side been now find any new work part take get place made live where after back little
only round man year came show every good me give our under name very through just form sentence great
think say help low line differ turn cause much mean before move right boy old too same tell does set
three want air well also play small end put home read hand port large spell add even land here must big
high such follow act why ask men change went light kind off need house picture try us again animal point
mother world near build self earth father throughput latency scheduler tokenization antidisestablishment
Kubernetes PostgreSQL naïve café façade co-operate don't it's we've o'clock state-of-the-art""".split()
CHINESE = """你好 请问 今天 天气 怎么样 我们 需要 一个 系统 来 处理 请求 队列 模型 推理 延迟 吞吐量 的 了 是 在 和
有 人工智能 服务器 北京 上海 学习 机器 翻译 下面 这段 文字 为什么 因为 所以 如果 那么 数据库 查询 缓存 更新 失败
重试 超时 用户 反馈 产品 设计 开发 测试 部署 监控 报警 日志 春天 夏天 秋天 冬天 龘 犇 々 〇 壹 贰""".split()
JAPANESE = "こんにちは 東京 の 天気 は どう です か カタカナ テスト 処理 する 待ち行列 ー ありがとう ございます".split()
OTHERS = """Привет мир очередь запрос почему Ωmega ελληνικά übergröße straße señor coração łódź مرحبا
بالعالم שלום สวัสดี 안녕하세요 नमस्ते Tiếng Việt ﬁ ½ ² ﾊﾝｶｸ Ｆｕｌｌ""".split()
EMOJI = ["🙂", "👩‍👩‍👧", "🇩🇪", "❤️", "🚀", "🤷🏽‍♀️", "✅", "①", "→", "∑", "𝔘", "𠮷"]
ADDED = [
    "<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "｜DSML｜",
    "<｜begin▁of▁sentence｜>", "<｜fim▁hole｜>", "<|User|>", "<think", "<｜tool▁calls▁begin｜>", "<tool_result>",
]
CODE = [
    "def {a}({b}, *, limit=10):\n    \"\"\"{c}\"\"\"\n    return [{b}[i] for i in range(limit) if i % {n} == 0]\n",
    "fn {a}<T: Ord>(mut {b}: Vec<T>) -> Option<T> {{\n\t{b}.sort_unstable();\n\t{b}.pop() // {c}\n}}\n",
    "SELECT {a}, COUNT(*) AS n FROM {b} WHERE ts >= '2024-{n}-01' GROUP BY 1 HAVING n > {n};\n",
    "<div class=\"{a}\">\r\n  <a href=\"https://example.org/{b}?q={n}&x=%20\">{c}</a>\r\n</div>\r\n",
    "if (({a} & 0x{n}f) != 0) {{ {b}->next = &{a}[{n}]; }}  /* {c} */\n",
    "{{\"{a}\": [{n}, {n}.5, -1e-{n}], \"{b}\": null, \"c\": \"{c}\"}}\n",
]


class Raw(str):
    """A JSON number that is written as it stands."""


class Chats:
    """Makes requests; the same seed gives the same ones."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    # --- Texts

    def words(self, count, pool, gap=" "):
        r, text = self.r, []
        for _ in range(count):
            word = r.choice(pool)
            if gap and r.random() < 0.12:
                word = word.capitalize() if r.random() < 0.7 else word.upper()
            if r.random() < 0.14:
                word += r.choice([",", ".", "?", "!", ":", ";", " —", "...", ".\n", ".\n\n"] if gap else "，。？！：；、")
            if r.random() < 0.04:
                word = r.choice([str(r.randrange(10**9)), f"{r.random():.3f}", "2024-05-17", "0x7fff", "1,234,567"])
            text.append(word)
        return gap.join(text)

    def code(self, lines):
        r = self.r
        name = lambda: r.choice(["", "my_", "get", "m2"]) + r.choice(ENGLISH[:120]) + r.choice(["", "Id", "_x", "9"])
        return "".join(
            r.choice(CODE).format(a=name(), b=name(), c=self.words(4, ENGLISH), n=r.randrange(1, 13))
            for _ in range(lines)
        )

    def text(self, tokens, style=None):
        """About so many tokens of one kind of text."""
        r = self.r
        style = style or r.choice(["english", "english", "chinese", "chinese", "mixed", "mixed", "code", "other"])
        if style == "english":
            return self.words(max(1, int(tokens / 1.2)), ENGLISH)
        if style == "chinese":
            return self.words(max(1, int(tokens / 1.1)), CHINESE, "")
        if style == "code":
            return f"```{r.choice(['', 'python', 'rust'])}\n{self.code(max(1, tokens // 30))}```"
        if style == "other":
            return self.words(max(1, tokens // 3), JAPANESE + OTHERS, r.choice(["", " "]))
        pieces = []
        while sum(map(len, pieces)) < tokens * 3:
            pieces.append(
                r.choice(
                    [
                        lambda: self.words(6, ENGLISH),
                        lambda: self.words(6, CHINESE, ""),
                        lambda: self.words(3, JAPANESE + OTHERS),
                        lambda: r.choice(EMOJI) * r.randrange(1, 4),
                        lambda: self.code(1),
                        lambda: "| a | b |\n|---|---|\n| 1 | 二 |\n",
                        lambda: "".join(r.choices(string.ascii_letters + string.digits + "+/=_-", k=24)),
                    ]
                )()
            )
        return r.choice(["", " ", "\n"]).join(pieces)

    def edge(self, text):
        """The same text with an odd beginning or end, as these meet what the template puts there."""
        r = self.r
        ends = ["", "", " ", "\n", "\n\n", "\t", ".", "。", "\r\n", "  \n", "1", "\u3000", "\u00a0"]
        return r.choice(ends[:9]) + text + r.choice(ends)

    # --- Parts of a request

    def schema(self, depth):
        r, properties = self.r, {}
        for _ in range(r.randrange(1, 4)):
            name = r.choice(ENGLISH[:150]) + r.choice(["", "_id", "Name", "-x", ".y", "类型"])
            kind = r.choice(["string", "integer", "number", "boolean", "array", "object"])
            value = {"type": kind, "description": self.text(r.randrange(1, 14))}
            if kind == "array":
                value["items"] = {"type": "string"} if depth <= 0 else self.schema(depth - 1)
            elif kind == "object":
                value.update(self.schema(depth - 1) if depth > 0 else {"additionalProperties": False})
            elif kind == "string":
                if r.random() < 0.5:
                    value["enum"] = [r.choice(CHINESE + ENGLISH) for _ in range(r.randrange(1, 5))] + [None, ""][: r.randrange(3)]
                if r.random() < 0.3:
                    value["pattern"] = "^[a-z\\d\"'/]{1,8}\\.\t$"
            else:
                value["minimum"] = r.choice([0, -1, Raw("1.0"), Raw("1e3"), Raw("0.10"), Raw("-0.0"), Raw("1E-7"), 2**53, Raw("1e16")])
            properties[name] = value
        return {"type": "object", "properties": properties, "required": list(properties)[:1], **({"$defs": {}} if r.random() < 0.2 else {})}

    def tools(self, count, depth=1):
        r, tools = self.r, []
        for index in range(count):
            function = {
                "name": f"{r.choice(['get', 'set', 'find', 'send'])}_{r.choice(ENGLISH[100:160])}_{index}",
                "description": self.text(r.randrange(3, 40)),
                "parameters": self.schema(depth),
            }
            if r.random() < 0.15:
                del function["description"]
            if r.random() < 0.1:
                function["parameters"] = r.choice([{}, None])
            if r.random() < 0.2:
                function["strict"] = r.choice([True, False, None])
            if r.random() < 0.15:
                function["x-extra"] = {"a": [1]}
            if r.random() < 0.4:
                function = dict(r.sample(sorted(function.items(), key=lambda item: item[0]), len(function)))
            tool = {"type": "function", "function": function}
            if r.random() < 0.1:
                tool["defer_loading"] = r.choice([True, False])
            tools.append(tool)
        return tools

    def arguments(self):
        r = self.r
        values = [
            self.text(8), "", r.randrange(-5, 10**6), r.random(), True, None, [1, "二", {"k": "v"}], {}, [],
            {"a": {"b": self.text(4)}}, "line\nline \"quoted\" \\ 🙂",
        ]
        made = {r.choice(ENGLISH[:120]) + r.choice(["", "_x", "城市"]): r.choice(values) for _ in range(r.randrange(4))}
        if r.random() < 0.1:
            return r.choice(["", "{not json", "[1]", "7"])
        return json.dumps(made, ensure_ascii=r.random() < 0.5, indent=r.choice([None, None, 2]))

    def exchange(self, calls=0, tokens=30):
        """A user's turn, calls with their results where wanted, and the answer to it."""
        r = self.r
        messages = [{"role": "user", "content": self.edge(self.text(r.randrange(1, tokens)))}]
        if calls:
            ids = [f"call_{r.randrange(10**6)}_{i}" for i in range(calls)]
            messages.append(
                {
                    "role": "assistant",
                    "content": r.choice([None, "", self.text(6)]),
                    "tool_calls": [
                        {"id": i, "type": "function", "function": {"name": f"get_{r.choice(ENGLISH[100:160])}", "arguments": self.arguments()}}
                        for i in ids
                    ],
                }
            )
            r.shuffle(ids)
            for i in ids:
                result = self.edge(self.text(r.randrange(1, 25)))
                if r.random() < 0.3:
                    result = [{"type": "text", "text": result}, {"type": "text", "text": self.text(5)}][: r.randrange(1, 3)]
                messages.append({"role": "tool", "tool_call_id": i, "content": result})
        messages.append({"role": "assistant", "content": self.edge(self.text(r.randrange(1, tokens)))})
        return messages

    def question(self, tokens=40):
        return {"role": "user", "content": self.edge(self.text(self.r.randrange(1, tokens)))}

    def system(self, tokens=40):
        return {"role": "system", "content": self.edge(self.text(self.r.randrange(1, tokens)))}

    def thinking(self, body):
        """Says, or does not say, how much is to be thought."""
        r = self.r
        choice = r.randrange(8)
        if choice == 0:
            body["reasoning_effort"] = r.choice(["none", "minimal", "low", "medium", "high", "xhigh", "max", None])
        elif choice <= 3:
            body["chat_template_kwargs"] = {r.choice(["thinking", "enable_thinking"]): r.choice([True, False, False])}
        elif choice == 4:
            body["chat_template_kwargs"] = {"thinking": True, "reasoning_effort": r.choice(["low", "high", "max", "other"])}
        return body

    # --- Kinds

    def plain(self):
        return {"messages": [{"role": "user", "content": self.text(self.r.choice([1, 5, 40, 200]))}]}

    def with_system(self):
        return {"messages": [self.system(), self.question()]}

    def history(self):
        head = [self.system()] if self.r.random() < 0.5 else []
        turns = [m for _ in range(self.r.randrange(1, 5)) for m in self.exchange()]
        return {"messages": head + turns + [self.question()]}

    def effort(self):
        body = self.history() if self.r.random() < 0.5 else self.with_system()
        r = self.r
        body.pop("chat_template_kwargs", None)
        if r.random() < 0.6:
            body["reasoning_effort"] = r.choice(["none", "minimal", "low", "medium", "high", "xhigh", "max", None])
        if r.random() < 0.6:
            body["chat_template_kwargs"] = {
                key: r.choice(values)
                for key, values in {
                    "thinking": [True, False, None, 0, 1, "false", ""],
                    "enable_thinking": [True, False, None],
                    "reasoning_effort": ["none", "low", "high", "max", "other", None, 5],
                    "drop_thinking": [True, False],
                    "unknown": ["x"],
                }.items()
                if r.random() < 0.5
            }
        return body

    def reasoning(self):
        body = self.history()
        for message in body["messages"]:
            if message["role"] == "assistant" and self.r.random() < 0.7:
                message[self.r.choice(["reasoning", "reasoning_content"])] = self.text(20)
        if self.r.random() < 0.3:
            body["messages"].pop()
        if self.r.random() < 0.4:
            body["tools"] = self.tools(1)
        return body

    def tools_few(self):
        body = self.with_system() if self.r.random() < 0.6 else self.history()
        return {**body, "tools": self.tools(self.r.choice([1, 1, 2, 5]))}

    def tools_many(self):
        return {**self.history(), "tools": self.tools(10, 2), **({"tool_choice": self.r.choice(["auto", "none"])} if self.r.random() < 0.5 else {})}

    def tools_deep(self):
        return {"tools": self.tools(2, 5), "messages": [self.system(), self.question()]}

    def calls(self):
        r = self.r
        messages = [self.system()] if r.random() < 0.5 else []
        for _ in range(r.randrange(1, 3)):
            messages += self.exchange(calls=r.randrange(1, 4))
        end = r.random()
        if end < 0.4:
            messages.pop()
        elif end < 0.9:
            messages.append(self.question())
        for message in messages:
            if message["role"] == "assistant" and r.random() < 0.4:
                message["reasoning_content"] = self.text(15)
        return {"messages": messages, **({"tools": self.tools(2)} if r.random() < 0.7 else {})}

    def parts(self):
        r = self.r
        body = self.history()
        for message in body["messages"]:
            if r.random() < 0.8:
                pieces = [message["content"], self.edge(self.text(8)), "", "\n\n"][: r.randrange(1, 5)]
                message["content"] = [{"type": "text", "text": piece} for piece in pieces]
                if r.random() < 0.3:
                    message["content"][0]["cache_control"] = {"type": "ephemeral"}
        return body

    def added_tokens(self):
        r = self.r
        mixed = lambda: "".join(
            r.choice([r.choice(ADDED), self.text(5), " ", "\n", r.choice(EMOJI)]) for _ in range(r.randrange(2, 12))
        )
        body = self.history()
        for message in body["messages"]:
            message["content"] = mixed()
        return body

    def roles(self):
        """Orders and roles beyond the usual: several systems, developers, neighbours of one role."""
        r = self.r
        messages = []
        for _ in range(r.randrange(1, 6)):
            role = r.choice(["system", "user", "user", "assistant", "developer", "latest_reminder"])
            messages.append({"role": role, "content": self.edge(self.text(r.randrange(1, 20)))})
            if r.random() < 0.2:
                messages[-1]["name"] = "Zoë"
        messages.append(r.choice([self.question(), self.question(), self.system()]))
        return {"messages": messages, **({"tools": self.tools(1)} if r.random() < 0.3 else {})}

    def empty(self):
        r = self.r
        return {
            "messages": [
                {"role": "system", "content": r.choice(["", [], " "])},
                {"role": "user", "content": r.choice(["", [], "\n"])},
                {"role": "assistant", **r.choice([{"content": None}, {"content": ""}, {}])},
                {"role": "user", "content": r.choice(["", "?", [{"type": "text", "text": ""}]])},
            ][r.randrange(2) :],
            **({"tools": self.tools(1)} if r.random() < 0.3 else {}),
        }

    def response_format(self):
        kind = self.r.choice(
            [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {"城市": {"type": "string"}}}}}]
        )
        return {**self.with_system(), "response_format": kind}

    def ignored(self):
        """Fields that the template of other models would look at."""
        return {
            **self.history(),
            **self.r.choice(
                [
                    {"add_generation_prompt": False},
                    {"documents": [{"title": "t", "text": self.text(30)}]},
                    {"echo": True},
                    {"user": "u", "metadata": {"note": self.text(10)}, "thinking": {"type": "disabled"}},
                    {"add_special_tokens": True, "skip_special_tokens": False},
                ]
            ),
        }

    def long(self):
        tokens = self.r.choice([1000, 2000, 3000, 4500, 6000])
        style = self.r.choice(["english", "english", "chinese", "mixed", "code"])
        return {"messages": [self.system(), *self.exchange(), {"role": "user", "content": self.text(tokens, style)}]}

    def completion(self):
        r = self.r
        prompt = r.choice(
            [self.text(60), self.edge(self.text(400)), [self.text(9), self.text(30)][: r.randrange(1, 3)], "<｜begin▁of▁sentence｜>" + self.text(20)]
        )
        return {"prompt": prompt, **({"suffix": self.text(10)} if r.random() < 0.2 else {})}

    def token_ids(self):
        r = self.r
        ids = lambda: [r.randrange(100, 120_000) for _ in range(r.choice([1, 30, 700, 4000]))]
        return {"prompt": r.choice([ids(), [ids()], [ids(), ids()]])}

    # --- A request as it is sent

    def body(self, value, style):
        """JSON in one of the ways clients write it: compact, spaced, indented, or escaped for no reason."""
        r = self.r
        space = (lambda: "") if style == "compact" else (lambda: r.choice(["", " ", "  ", "\n", "\t "]))
        escape = style == "ascii"

        def write(item):
            if isinstance(item, Raw):
                return str(item)
            if isinstance(item, str):
                text = json.dumps(item, ensure_ascii=escape)
                if style == "odd":
                    text = self.escaped(text).replace("/", "\\/")
                return text
            if isinstance(item, dict):
                return "{" + ",".join(f"{space()}{write(k)}{space()}:{space()}{write(v)}{space()}" for k, v in item.items()) + "}"
            if isinstance(item, list):
                return "[" + ",".join(f"{space()}{write(v)}{space()}" for v in item) + "]"
            return json.dumps(item)

        return write(value)

    def escaped(self, text):
        """A JSON string with some of its letters written as escapes."""
        if "\\" in text:
            return text
        letter = lambda c: c.isalpha() and c.isascii() and self.r.random() < 0.03
        return "".join(f"\\u{ord(c):04X}" if letter(c) else c for c in text)

    def request(self, kind):
        """`(path, stream, body)` of one request of this kind."""
        r = self.r
        body = getattr(self, kind)()
        text = "prompt" in body
        if not text and kind != "effort":
            self.thinking(body)
        if any(tool["function"].get("strict") for tool in body.get("tools", ())):
            body["tool_choice"] = "none"  # else the engine makes a grammar of it, which not every schema allows
        body.update(model=r.choice(["deepseek-v4", "deepseek-v4", "deepseek-chat"]), temperature=0)
        body[r.choice(["max_tokens", "max_completion_tokens"]) if not text else "max_tokens"] = r.choice([1, 2])
        stream = r.random() < 0.4 and "echo" not in body
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        elif r.random() < 0.2:
            body["n"] = 1
        # Names in another order: the messages may come before or after what changes their meaning.
        body = dict(r.sample(list(body.items()), len(body)))
        path = "/v1/completions" if text else "/v1/chat/completions"
        return path, stream, self.body(body, r.choice(["compact", "compact", "spaced", "ascii", "odd"]))


# How many of 200 requests are of each kind.
KINDS = {
    "plain": 20,
    "with_system": 12,
    "history": 16,
    "effort": 16,
    "reasoning": 12,
    "tools_few": 16,
    "tools_many": 8,
    "tools_deep": 8,
    "calls": 18,
    "parts": 10,
    "added_tokens": 10,
    "roles": 14,
    "empty": 6,
    "response_format": 5,
    "ignored": 7,
    "long": 10,
    "completion": 8,
    "token_ids": 4,
}


def requests(count, seed):
    """`count` requests as `(kind, path, stream, body)`, the kinds mixed in their proportions."""
    total = sum(KINDS.values())
    chats, made, so_far = Chats(seed), [], dict.fromkeys(KINDS, 0)
    for number in range(1, count + 1):
        kind = max(KINDS, key=lambda k: KINDS[k] / total * number - so_far[k])
        so_far[kind] += 1
        made.append((kind, *chats.request(kind)))
    return made
