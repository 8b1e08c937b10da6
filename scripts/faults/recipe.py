"""A small recipe that goes through every part of a run in a second: several files and formats, caps that
need a second round of map, duplicates, contaminated rows, bad answers, splits, two phases."""
import csv
import gzip
import json
import pathlib
import random

def write(folder, tokenizer, rows=1200):
    """Writes corpus, benchmark and the recipes into `folder`: one.toml and phases.toml."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(pathlib.Path(tokenizer).read_bytes())
    made = random.Random(11)
    words = ["".join(made.choice("bcdfghklmnprstv") + made.choice("aeiou") for _ in range(made.randint(1, 3)))
             for _ in range(900)]
    items = [" ".join(made.choice(words) for _ in range(30)) for _ in range(40)]
    with open(folder / "bench.jsonl", "w", encoding="utf-8") as file:
        for at, item in enumerate(items):
            file.write(json.dumps({"id": f"b{at}", "question": item}) + "\n")
    with open(folder / "chat.jsonl", "w", encoding="utf-8") as file:
        for row in chat(made, words, items, rows):
            file.write(json.dumps(row) + "\n")
    with gzip.GzipFile(folder / "more.jsonl.gz", "wb", mtime=0) as file:
        for row in chat(made, words, items, rows // 2):
            file.write((json.dumps(row) + "\n").encode())
    with open(folder / "text.csv", "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["id", "text"])
        for at in range(rows):
            out.writerow([at, prose(made, words, made.randint(10, 400))])
    (folder / "one.toml").write_text(ONE)
    (folder / "phases.toml").write_text(PHASES)


def chat(made, words, items, rows):
    earlier = []
    for at in range(rows):
        prompt, answer = prose(made, words, made.randint(5, 60)), prose(made, words, made.randint(1, 250))
        chance = made.random()
        if chance < 0.04:
            prompt += " " + made.choice(items)
        elif chance < 0.10 and earlier:
            prompt, answer = made.choice(earlier)
        elif chance < 0.12:
            answer = ""
        earlier.append((prompt, answer))
        yield {"id": f"r{at}", "messages": [{"role": "user", "content": prompt},
                                            {"role": "assistant", "content": answer}]}


def prose(made, words, count):
    return " ".join(made.choice(words) for _ in range(count))


COMMON = """
[decontaminate]
benchmarks = ["bench.jsonl"]

[tokenise]
tokenizer = "tokenizer.json"
"""

# A cap on what survives needs more rows than the first threshold lets through: half of the texts are
# over-long and dropped after it.
ONE = """name = "faults"
seed = 5

[[source]]
name = "chat"
path = "chat.jsonl"

[[source]]
name = "more"
path = "more.jsonl.gz"
max_rows = 300

[[source]]
name = "text"
path = "text.csv"
max_rows = 250
""" + COMMON + """
[pack]
length = 1200

[output]
partition_bytes = 300000
validation = 0.03
"""

PHASES = """name = "faults"
seed = 5

[[phase]]
name = "text"

[[phase.source]]
name = "text"
path = "text.csv"
sample = 0.4

[phase.pack]
length = 900
overlong = "split"

[phase.output]
partition_bytes = 300000

[[phase]]
name = "mix"
exclude_phase = "text"

[[phase.source]]
name = "text"
path = "text.csv"

[[phase.source]]
name = "more"
path = "more.jsonl.gz"

[phase.output]
partition_bytes = 300000
""" + COMMON
