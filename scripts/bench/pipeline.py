#!/usr/bin/env python3
"""From chat rows to training shards beside peers: pipeline.py ROWS.jsonl FOLDER [options]

Every tool gets the same rows (`messages`; see ../shared/tools/gen_load.py) and two workers:

  potable    render, tokenise, mask, pack, write (`prep`, nothing to check against), as Parquet and as the
             format of Megatron-Bridge
  trl        what SFTTrainer does before it trains: the chat template with its mask, `datasets.map` with
             num_proc=2 for ids and for labels, TRL's packing; written by `save_to_disk`
  datatrove  DocumentTokenizer over text that was rendered before, with two tasks; no template, mask or packing

Each runs as a process of its own. CPU seconds are user and system of all its processes. Start-up is the same
command over one row, and is taken off. Memory is the sum over its processes (proportional share of pages), at
its highest. Bytes a token are those of the shards that a trainer reads. CPU seconds do not need a quiet machine.

  --potable BIN      default: target/release/potable
  --trl PY           a Python with trl, transformers, datasets
  --datatrove PY     a Python with datatrove
  --data DIR         folder with `templates/` and `tokenizers/` (default: ../shared/data)
  --length N         pack length (default 16384)
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

TRL = '''
import sys
from datasets import load_dataset
from transformers import PreTrainedTokenizerFast
from trl.data_utils import pack_dataset
rows, out, tokenizer, template, length = sys.argv[1:6]
tok = PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
tok.chat_template = open(template).read()
data = load_dataset("json", data_files=rows, split="train", cache_dir=out + "/cache")
def tokenise(row):
    made = tok.apply_chat_template(row["messages"], return_dict=True, return_assistant_tokens_mask=True)
    return {"input_ids": made["input_ids"], "assistant_masks": made["assistant_masks"]}
def labels(row):
    return {"labels": [i if m else -100 for i, m in zip(row["input_ids"], row["assistant_masks"])]}
procs = 2 if len(data) > 1 else None
data = data.map(tokenise, num_proc=procs, remove_columns=data.column_names)
data = data.map(labels, num_proc=procs, remove_columns=["assistant_masks"])
data = pack_dataset(data, int(length), "bfd", {"num_proc": procs})
data.save_to_disk(out + "/shards")
print(sum(map(sum, data["seq_lengths"])))
'''

DATATROVE = '''
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
if __name__ == "__main__":
    rows, out, tokenizer = sys.argv[1:4]
    LocalPipelineExecutor(
        pipeline=[JsonlReader(rows), DocumentTokenizer(out + "/shards", tokenizer_name_or_path=tokenizer, shuffle_documents=False)],
        tasks=2, workers=2, logging_dir=out + "/logs", start_method="fork",
    ).run()
'''

RENDER = '''
import json, pathlib, sys
from transformers import PreTrainedTokenizerFast
rows, out, tokenizer, template = sys.argv[1:5]
tok = PreTrainedTokenizerFast(tokenizer_file=tokenizer)
tok.chat_template = open(template).read()
pathlib.Path(out).mkdir(parents=True)
files = [open(f"{out}/{half}.jsonl", "w") for half in "ab"]
for number, line in enumerate(open(rows)):
    text = tok.apply_chat_template(json.loads(line)["messages"], tokenize=False)
    print(json.dumps({"id": str(number), "text": text}), file=files[number % 2])
'''

RECIPE = """
seed = 1
[[source]]
name = "load"
path = {rows}
[decontaminate]
none = true
[pack]
length = {length}
overlong = "truncate"
[output]
format = "{format}"
"""


def tree(pid):
    """A process and all below it."""
    found, ahead = [], [pid]
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                ahead += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def pss(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def run(command):
    """CPU seconds, wall seconds, peak memory in MB, stdout."""
    started, peak = time.monotonic(), [0]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = []
    readers = [threading.Thread(target=lambda pipe=pipe: said.append((pipe is child.stdout, pipe.read())))
               for pipe in (child.stdout, child.stderr)]
    ended = threading.Event()

    def watch():
        while not ended.wait(0.2):
            peak[0] = max(peak[0], sum(map(pss, tree(child.pid))))

    watcher = threading.Thread(target=watch)
    for thread in (*readers, watcher):
        thread.start()
    _, status, usage = os.wait4(child.pid, 0)
    ended.set()
    for thread in (*readers, watcher):
        thread.join()
    said = dict(said)
    if status:
        sys.exit(f"{command[0]} failed:\n{said[False][-3000:]}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, peak[0] / 1024, said[True]


def size(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


def measure(name, command, rows, one, folder):
    """Start-up with one row, then all; `command` takes rows and an output folder."""
    for part in ("one", "all"):
        shutil.rmtree(f"{folder}/{name}-{part}", ignore_errors=True)
    start = run(command(one, f"{folder}/{name}-one"))
    cpu, wall, memory, said = run(command(rows, f"{folder}/{name}-all"))
    return {"start": start[0], "cpu": cpu, "wall": wall, "memory": memory, "said": said,
            "size": size(f"{folder}/{name}-all/shards"), "work": cpu - start[0]}


def show(name, found, tokens, mb, best):
    slower = "" if best is None else f"; {found['work'] / best:.1f} x potable's CPU"
    print(f"{name}: {found['work']:.1f} CPU s and {found['start']:.2f} at start-up, {mb / found['work']:.2f} MB of rows "
          f"a CPU s, wall {found['wall']:.1f} s, peak memory {found['memory']:.0f} MB, {tokens} tokens, "
          f"{found['size'] / tokens:.2f} bytes a token{slower}", flush=True)


def potable_command(args, folder, format):
    def command(rows, out):
        recipe = f"{folder}/{pathlib.Path(out).name}.toml"
        text = RECIPE.format(rows=json.dumps(os.path.abspath(rows)), length=args.length, format=format)
        pathlib.Path(recipe).write_text(text)
        return [args.potable, "prep", recipe, "--out", out, "--no-progress", "--threads", "2"]
    return command


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("rows")
    parser.add_argument("folder")
    parser.add_argument("--potable", default="target/release/potable")
    parser.add_argument("--trl")
    parser.add_argument("--datatrove")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--length", type=int, default=16384)
    args = parser.parse_args()
    folder = os.path.abspath(args.folder)
    os.makedirs(folder, exist_ok=True)
    tokenizer = f"{args.data}/tokenizers/qwen3.tokenizer.json"
    template = f"{args.data}/templates/qwen3_official_with_markers.jinja"
    mb = os.path.getsize(args.rows) / 1e6
    one = f"{folder}/one.jsonl"
    with open(args.rows) as file:
        pathlib.Path(one).write_text(min((next(file) for _ in range(50)), key=len))
    print(f"{mb:.0f} MB of chat rows, packs of {args.length}, two workers", flush=True)

    found = {}
    for format in ("parquet", "megatron-bridge"):
        name = f"potable-{format}"
        found[name] = measure(name, potable_command(args, folder, format), args.rows, one, folder)
        manifest = json.load(open(f"{folder}/{name}-all/manifest.json"))
        show(name, found[name], manifest["tokens"]["total"], mb, None)
    best = found["potable-parquet"]["work"]
    if args.trl:
        script = f"{folder}/by_trl.py"
        pathlib.Path(script).write_text(TRL)
        command = lambda rows, out: [args.trl, script, rows, out, tokenizer, template, str(args.length)]
        trl = measure("trl", command, args.rows, one, folder)
        show("trl", trl, int(trl["said"].split()[-1]), mb, best)
    if args.datatrove:
        script, render = f"{folder}/by_datatrove.py", f"{folder}/render.py"
        pathlib.Path(script).write_text(DATATROVE)
        pathlib.Path(render).write_text(RENDER)
        for part, rows in (("text-one", one), ("text-all", args.rows)):
            shutil.rmtree(f"{folder}/{part}", ignore_errors=True)
            subprocess.run([args.trl or sys.executable, render, rows, f"{folder}/{part}", tokenizer, template],
                           check=True)
        command = lambda rows, out: [args.datatrove, script, rows, out, tokenizer]
        trove = measure("datatrove", command, f"{folder}/text-all", f"{folder}/text-one", folder)
        tokens = sum(path.stat().st_size for path in pathlib.Path(folder).glob("datatrove-all/shards/*.ds")) // 4
        show("datatrove", trove, tokens, mb, best)


if __name__ == "__main__":
    main()
