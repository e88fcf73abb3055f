"""Texts, messages and tools for token-truth.sh, made of word lists: varied for a tokenizer, not to be read."""

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
    "<think>",
    "</think>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>",
    "｜DSML｜",
    "<｜begin▁of▁sentence｜>",
    "<｜fim▁hole｜>",
    "<|User|>",
    "<think",
    "<｜tool▁calls▁begin｜>",
    "<tool_result>",
]
CODE = [
    'def {a}({b}, *, limit=10):\n    """{c}"""\n    return [{b}[i] for i in range(limit) if i % {n} == 0]\n',
    "fn {a}<T: Ord>(mut {b}: Vec<T>) -> Option<T> {{\n\t{b}.sort_unstable();\n\t{b}.pop() // {c}\n}}\n",
    "SELECT {a}, COUNT(*) AS n FROM {b} WHERE ts >= '2024-{n}-01' GROUP BY 1 HAVING n > {n};\n",
    '<div class="{a}">\r\n  <a href="https://example.org/{b}?q={n}&x=%20">{c}</a>\r\n</div>\r\n',
    "if (({a} & 0x{n}f) != 0) {{ {b}->next = &{a}[{n}]; }}  /* {c} */\n",
    '{{"{a}": [{n}, {n}.5, -1e-{n}], "{b}": null, "c": "{c}"}}\n',
]


class Texts:
    """Makes texts; the same seed gives the same ones."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def words(self, count, pool, gap=" "):
        r, text = self.r, []
        for _ in range(count):
            word = r.choice(pool)
            if gap and r.random() < 0.12:
                word = word.capitalize() if r.random() < 0.7 else word.upper()
            if r.random() < 0.14:
                word += r.choice(
                    [",", ".", "?", "!", ":", ";", " —", "...", ".\n", ".\n\n"] if gap else "，。？！：；、"
                )
            if r.random() < 0.04:
                word = r.choice(
                    [str(r.randrange(10**9)), f"{r.random():.3f}", "2024-05-17", "0x7fff", "1,234,567"]
                )
            text.append(word)
        return gap.join(text)

    def code(self, lines):
        r = self.r
        name = lambda: (
            r.choice(["", "my_", "get", "m2"]) + r.choice(ENGLISH[:120]) + r.choice(["", "Id", "_x", "9"])
        )
        return "".join(
            r.choice(CODE).format(a=name(), b=name(), c=self.words(4, ENGLISH), n=r.randrange(1, 13))
            for _ in range(lines)
        )

    def text(self, tokens, style=None):
        """About so many tokens of one kind of text."""
        r = self.r
        style = style or r.choice(
            ["english", "english", "chinese", "chinese", "mixed", "mixed", "code", "other"]
        )
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


class Raw(str):
    """A JSON number that is written as it stands."""


class Parts(Texts):
    """What a request is put together of."""

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
                    value["enum"] = [r.choice(CHINESE + ENGLISH) for _ in range(r.randrange(1, 5))] + [
                        None,
                        "",
                    ][: r.randrange(3)]
                if r.random() < 0.3:
                    value["pattern"] = "^[a-z\\d\"'/]{1,8}\\.\t$"
            else:
                value["minimum"] = r.choice(
                    [0, -1, Raw("1.0"), Raw("1e3"), Raw("0.10"), Raw("-0.0"), Raw("1E-7"), 2**53, Raw("1e16")]
                )
            properties[name] = value
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:1],
            **({"$defs": {}} if r.random() < 0.2 else {}),
        }

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
            self.text(8),
            "",
            r.randrange(-5, 10**6),
            r.random(),
            True,
            None,
            [1, "二", {"k": "v"}],
            {},
            [],
            {"a": {"b": self.text(4)}},
            'line\nline "quoted" \\ 🙂',
        ]
        made = {
            r.choice(ENGLISH[:120]) + r.choice(["", "_x", "城市"]): r.choice(values)
            for _ in range(r.randrange(4))
        }
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
                        {
                            "id": i,
                            "type": "function",
                            "function": {
                                "name": f"get_{r.choice(ENGLISH[100:160])}",
                                "arguments": self.arguments(),
                            },
                        }
                        for i in ids
                    ],
                }
            )
            r.shuffle(ids)
            for i in ids:
                result = self.edge(self.text(r.randrange(1, 25)))
                if r.random() < 0.3:
                    result = [{"type": "text", "text": result}, {"type": "text", "text": self.text(5)}][
                        : r.randrange(1, 3)
                    ]
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
            body["reasoning_effort"] = r.choice(
                ["none", "minimal", "low", "medium", "high", "xhigh", "max", None]
            )
        elif choice <= 3:
            body["chat_template_kwargs"] = {
                r.choice(["thinking", "enable_thinking"]): r.choice([True, False, False])
            }
        elif choice == 4:
            body["chat_template_kwargs"] = {
                "thinking": True,
                "reasoning_effort": r.choice(["low", "high", "max", "other"]),
            }
        return body
