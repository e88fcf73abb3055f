"""The requests of token-truth.sh: generated from a seed, so that every run sends the same ones.

Each kind of chat stands for a way in which a prompt is put together. The body is written by hand,
because a client may write the same JSON in many ways and the count must not depend on which.
"""

import json

from token_texts import ADDED, EMOJI, Parts, Raw


class Chats(Parts):
    """Makes requests; the same seed gives the same ones."""

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
            body["reasoning_effort"] = r.choice(
                ["none", "minimal", "low", "medium", "high", "xhigh", "max", None]
            )
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
        return {
            **self.history(),
            "tools": self.tools(10, 2),
            **({"tool_choice": self.r.choice(["auto", "none"])} if self.r.random() < 0.5 else {}),
        }

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
            r.choice([r.choice(ADDED), self.text(5), " ", "\n", r.choice(EMOJI)])
            for _ in range(r.randrange(2, 12))
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
            [
                {"type": "text"},
                {"type": "json_object"},
                {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "answer",
                        "schema": {"type": "object", "properties": {"城市": {"type": "string"}}},
                    },
                },
            ]
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
        return {
            "messages": [
                self.system(),
                *self.exchange(),
                {"role": "user", "content": self.text(tokens, style)},
            ]
        }

    def completion(self):
        r = self.r
        prompt = r.choice(
            [
                self.text(60),
                self.edge(self.text(400)),
                [self.text(9), self.text(30)][: r.randrange(1, 3)],
                "<｜begin▁of▁sentence｜>" + self.text(20),
            ]
        )
        return {"prompt": prompt, **({"suffix": self.text(10)} if r.random() < 0.2 else {})}

    def token_ids(self):
        r = self.r
        ids = lambda: [r.randrange(100, 120_000) for _ in range(r.choice([1, 30, 700, 4000]))]
        return {"prompt": r.choice([ids(), [ids()], [ids(), ids()]])}

    def responses(self):
        r, items = self.r, []
        for message in self.history()["messages"]:
            content = message["content"]
            if message["role"] == "user" and r.random() < 0.3:
                content = [
                    {"type": "input_text", "text": content},
                    {"type": "input_text", "text": self.text(3)},
                ]
            items.append({"role": message["role"], "content": content})
        if r.random() < 0.4:
            items[-1:-1] = [
                {"type": "function_call", "call_id": "1", "name": "get_it", "arguments": self.arguments()},
                {"type": "function_call_output", "call_id": "1", "output": self.text(10)},
            ]
        body = {"input": r.choice([self.text(30), items, items])}
        if r.random() < 0.5:
            body["instructions"] = self.text(20)
        if r.random() < 0.5:
            body["reasoning"] = {"effort": r.choice(["none", "low", "high", "max"])}
        if r.random() < 0.4:
            body["tools"] = [
                {"type": "function", **tool["function"], "strict": None} for tool in self.tools(2)
            ]
        return body

    def messages(self):
        r, turns = self.r, []
        for message in self.history()["messages"]:
            if message["role"] == "system":
                continue
            content = message["content"]
            if r.random() < 0.4:
                content = [{"type": "text", "text": content}, {"type": "text", "text": self.text(5)}][
                    : r.randrange(1, 3)
                ]
            turns.append({"role": message["role"], "content": content})
        if r.random() < 0.4:
            turns[-1:-1] = [
                {"role": "user", "content": self.text(5)},
                {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "tool_use",
                            "id": "1",
                            "name": "get_it",
                            "input": {"a": self.text(4), "b": [1, 2.5]},
                        }
                    ],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "1", "content": self.text(10)}],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": self.text(9)},
                        {"type": "text", "text": self.text(9)},
                    ],
                },
            ]
        body = {"messages": turns}
        if r.random() < 0.6:
            body["system"] = r.choice(
                [
                    self.text(20),
                    [{"type": "text", "text": self.text(9)}, {"type": "text", "text": self.text(9)}],
                ]
            )
        if r.random() < 0.4:
            body["thinking"] = {"type": "disabled"}
        if r.random() < 0.4:
            rename = {"name": "name", "description": "description", "parameters": "input_schema"}
            functions = [tool["function"] for tool in self.tools(2)]
            body["tools"] = [{rename[k]: v for k, v in f.items() if k in rename} for f in functions]
            for tool in body["tools"]:
                tool["input_schema"] = tool.get("input_schema") or {"type": "object"}
        return body

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
                return (
                    "{"
                    + ",".join(
                        f"{space()}{write(k)}{space()}:{space()}{write(v)}{space()}" for k, v in item.items()
                    )
                    + "}"
                )
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
        body, path = getattr(self, kind)(), PATHS.get(kind, "/v1/chat/completions")
        chat = kind not in PATHS
        if chat and kind != "effort":
            self.thinking(body)
        # With a strict tool the engine makes a grammar of its schema, and not every schema allows that.
        if chat and any(tool["function"].get("strict") for tool in body.get("tools", ())):
            body["tool_choice"] = "none"
        cap = {"/v1/responses": "max_output_tokens"}.get(path, "max_tokens")
        if chat and r.random() < 0.5:
            cap = "max_completion_tokens"
        body.update(
            {
                "model": r.choice(["deepseek-v4", "deepseek-v4", "deepseek-chat"]),
                "temperature": 0,
                cap: r.choice([1, 2]),
            }
        )
        stream = kind not in OTHER_FORMS and r.random() < 0.4 and "echo" not in body
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        elif kind not in OTHER_FORMS and r.random() < 0.2:
            body["n"] = 1
        # Names in another order: the messages may come before or after what changes their meaning.
        body = dict(r.sample(list(body.items()), len(body)))
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

# Chats in the form of other interfaces, which the engine turns into its own before it renders them.
OTHER_FORMS = {"responses": 1, "messages": 1}
PATHS = {
    "completion": "/v1/completions",
    "token_ids": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def requests(count, seed, kinds=None):
    """`count` requests as `(kind, path, stream, body)`, the kinds mixed in their proportions."""
    kinds = kinds or KINDS
    total = sum(kinds.values())
    chats, made, so_far = Chats(seed), [], dict.fromkeys(kinds, 0)
    for number in range(1, count + 1):
        kind = max(kinds, key=lambda k: kinds[k] / total * number - so_far[k])
        so_far[kind] += 1
        made.append((kind, *chats.request(kind)))
    return made
