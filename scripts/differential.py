#!/usr/bin/env python3
"""Compares potable with the reference implementations, on files of the `differential` example.

    cargo run --release --example differential -- dump 100000 chats.jsonl
    python scripts/differential.py chats chats.jsonl TEMPLATES

    cargo run --release --example differential -- strings 200000 strings.jsonl
    cargo run --release --example differential -- ids strings.jsonl strings.ids
    python scripts/differential.py ids strings.jsonl strings.ids tokenizer.json

`chats` renders each conversation as `transformers` does (jinja2), with the templates of a folder, and
compares the texts. `ids` encodes each text with `tokenizers` and compares the ids. Needs `transformers`
and `tokenizers`. Exit status 1 at a difference.
"""

import json
import struct
import sys
from pathlib import Path

THINKING_PROMPT = "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}"
FILES = {
    "qwen3": "qwen3.jinja",
    "qwen3-instruct-2507": "qwen3_instruct_2507.jinja",
    "qwen3.5": "qwen3_5_think.jinja",
    "qwen3.6": "qwen3_6.jinja",
}


def arguments(text, template):
    """What a tool call's arguments are for a template: a mapping where it loses nothing by that."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    same = json.dumps(value, ensure_ascii=False) == text
    return value if same or "arguments is string" not in template else text


def messages(row, template):
    made = []
    for message in row["messages"]:
        message = dict(message)
        if "tool_calls" in message:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": c["name"], "arguments": arguments(c["arguments"], template)}}
                for c in message["tool_calls"]
            ]
        made.append(message)
    return made


def chats(dump, folder):
    from transformers.utils.chat_template_utils import _compile_jinja_template

    texts = {name: (Path(folder) / file).read_text(encoding="utf-8") for name, file in FILES.items()}
    cut = texts["qwen3"].rindex("{%- if add_generation_prompt %}")
    texts["qwen3-thinking-2507"] = texts["qwen3"][:cut] + THINKING_PROMPT
    compiled = {name: _compile_jinja_template(text) for name, text in texts.items()}
    counts = {name: [0, 0, 0] for name in texts}
    for number, line in enumerate(open(dump, encoding="utf-8")):
        row = json.loads(line)
        tools = [json.loads(tool) for tool in row["tools"]] or None
        for name, text in texts.items():
            try:
                theirs = compiled[name].render(messages=messages(row, text), tools=tools, add_generation_prompt=False)
            except Exception:
                theirs = None
            ours = row["ours"][name]
            counts[name][0] += 1
            counts[name][1] += ours is None
            if ours != theirs:
                counts[name][2] += 1
                if counts[name][2] <= 3:
                    print(f"{name} {number}\nours   {ours!r}\ntheirs {theirs!r}\n{line}")
    for name, (compared, refused, differ) in counts.items():
        print(f"{name:<22} {compared} conversations, {refused} refused, {differ} differ")
    return any(differ for _, _, differ in counts.values())


def ids(texts, ours, tokenizer):
    from tokenizers import Tokenizer

    engine = Tokenizer.from_file(tokenizer)
    compared = tokens = differ = 0
    with open(texts, encoding="utf-8") as lines, open(ours, "rb") as numbers:
        batch = []

        def settle():
            nonlocal compared, tokens, differ
            for text, encoding in zip(batch, engine.encode_batch(batch, add_special_tokens=False)):
                (count,) = struct.unpack("<I", numbers.read(4))
                found = list(struct.unpack(f"<{count}I", numbers.read(4 * count)))
                compared += 1
                tokens += count
                if found != encoding.ids:
                    differ += 1
                    if differ <= 3:
                        print(f"{text!r}\nours   {found}\ntheirs {encoding.ids}")
            batch.clear()

        for line in lines:
            batch.append(json.loads(line)["text"])
            if len(batch) == 1000:
                settle()
        settle()
        assert not numbers.read(1), "more ids than texts"
    print(f"{compared} texts, {tokens} ids, {differ} texts differ")
    return differ > 0


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    runs = {"chats": chats, "ids": ids}
    if command not in runs:
        sys.exit(__doc__)
    sys.exit(runs[command](*rest))
