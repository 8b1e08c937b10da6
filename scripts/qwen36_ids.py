#!/usr/bin/env python3
"""Ids of the formats `qwen3.5` and `qwen3.6` beside `transformers`: qwen36_ids.py POTABLE ROWS.jsonl FOLDER [DATA]

Builds a tokenizer.json of that vocabulary from DATA/tokenizers/qwen3_6.tiktoken (248,044 ranks, then the added
tokens in the order of Qwen3), with the `Split` pattern of `transformers`' Qwen3_5Tokenizer; lets potable prepare
chat rows (`messages`) with it, and compares every id with those of the chat template, run and encoded by
`transformers`. DATA is ../shared/data by default. Needs transformers and pyarrow.
"""
import base64
import json
import os
import subprocess
import sys

import pyarrow.parquet as pq
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX

ADDED = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call>
</tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response>
</tool_response> <think> </think>""".split()


def parts_of(ranks, token, rank):
    """The two tokens that a token was merged of: byte pair encoding of it with the ranks below its own."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, rank), at) for at, (a, b) in enumerate(zip(parts, parts[1:]))]
        lowest, at = min(pairs)
        if lowest >= rank:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def build(path, out):
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, open(path))}
    text = bytes_to_unicode()
    shown = lambda token: "".join(text[byte] for byte in token)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = parts_of(ranks, token, rank) if len(token) > 1 else None
        if parts:
            merges.append((shown(parts[0]), shown(parts[1])))
    vocabulary = {shown(token): rank for token, rank in ranks.items()}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(name, special=name.startswith("<|"), normalized=False) for name in ADDED])
    assert made.token_to_id("<|im_start|>") == 248045 and made.token_to_id("<think>") == 248068
    made.save(out)


def main():
    potable, rows, folder = sys.argv[1:4]
    data = sys.argv[4] if len(sys.argv) > 4 else "../shared/data"
    os.makedirs(folder, exist_ok=True)
    build(f"{data}/tokenizers/qwen3_6.tiktoken", f"{folder}/tokenizer.json")
    fast = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    failed = False
    for name, template in (("qwen3.5", "qwen3_5_think"), ("qwen3.6", "qwen3_6")):
        fast.chat_template = open(f"{data}/templates/{template}.jinja").read()

        recipe = f"{folder}/{name}.toml"
        with open(recipe, "w") as file:
            file.write(f"""
[[source]]
name = "a"
path = {json.dumps(os.path.abspath(rows))}
[decontaminate]
none = true
[dedup]
exact = "none"
[normalise]
format = "{name}"
policy = "faithful"
[tokenise]
tokenizer = "tokenizer.json"
[pack]
length = 1048576
strategy = "none"
""")
        out = f"{folder}/{name}"
        subprocess.run([potable, "prep", recipe, "--out", out, "--no-progress", "--fresh"], check=True,
                       stderr=subprocess.DEVNULL)
        samples = {}
        for shard in sorted(os.listdir(f"{out}/shards")):
            for row in pq.read_table(f"{out}/shards/{shard}").to_pylist():
                samples[int(row["sample_ids"][0].rsplit(":", 1)[1].split(".")[0])] = row
        ids = differ = tokens = trained = 0
        for number, line in enumerate(open(rows)):
            messages = json.loads(line)["messages"]
            want = fast.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
            found = samples.pop(number)
            ids += 1
            tokens += len(want)
            trained += sum(label != -100 for label in found["labels"])
            differ += found["input_ids"] != want
        failed = failed or differ or samples
        print(f"{name}: {ids} conversations, {tokens} ids, {trained} trained on, {differ} conversations differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
