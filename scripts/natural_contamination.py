#!/usr/bin/env python3
"""What potable and a plain 13-gram filter find in real corpora, and where they differ.

natural_contamination.py DATA POTABLE [--counts FILE] [--show CLASS [--examples N] [--seed N]]

DATA holds `benchmarks/`, `corpora/` and `marked/` (see bench/sets.py). The plain filter drops a row if 13
consecutive words (runs of letters and digits, lower case) of any of its texts stand in an item's question.
`--counts` compares it with counts made by someone else. `--show` prints rows of one class, for judging:
corpus, row, item, and the texts side by side.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent / "bench"))
import sets

N = 13
WORDS = re.compile(r"\w+")
BENCHMARKS = "gsm8k math_test5000 math500 mmlu mmlu_pro olympiadbench aime24 aime25 amc23 lcb_v5 humaneval mbpp_test arc_challenge".split()
CORPORA = {
    "gsm8k/train.jsonl": "corpora/gsm8k/train.jsonl",
    "math/rllm.train.math.json": "marked/corpora/math/rllm.train.math.json",
    "numinamath/numina_cot_2k.jsonl": "marked/corpora/numinamath/numina_cot_2k.jsonl",
}


def grams(text):
    words = WORDS.findall(text.lower())
    return [" ".join(words[at : at + N]) for at in range(len(words) - N + 1)]


def texts(row):
    return [value for value in row.values() if isinstance(value, str)]


class Plain:
    """The plain filter: grams to the items that hold them."""

    def __init__(self, items):
        self.index = collections.defaultdict(set)
        for benchmark, rows in items.items():
            for at, item in enumerate(rows):
                for gram in grams(item["question"]):
                    self.index[gram].add((benchmark, at))

    def hits(self, row):
        return {gram for text in texts(row) for gram in grams(text) if gram in self.index}


def verdicts(potable, folder, items, rows):
    """potable's matches of each row, by row number."""
    for name, found in items.items():
        lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in found)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    blocklist, corpus = folder / "all.blk", folder / "corpus.jsonl"
    if not blocklist.exists():
        built = [potable, "blocklist", "build", *(folder / f"{name}.jsonl" for name in items), "-o", blocklist]
        subprocess.run(built, check=True, capture_output=True)
    named = ({"id": str(at), "row": texts(row)} for at, row in enumerate(rows))
    corpus.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in named), encoding="utf-8")
    ran = subprocess.run([potable, "blocklist", "check", blocklist, corpus, "--format", "jsonl"], capture_output=True)
    if ran.returncode not in (0, 1):
        sys.exit(ran.stderr.decode())
    found = collections.defaultdict(list)
    for line in ran.stdout.decode().splitlines():
        match = json.loads(line)
        found[int(match["id"])].append(match)
    return found


def class_of(hits, matches):
    """The class of a row; `None` if neither filter finds anything."""
    drops = [match for match in matches if match["action"] == "drop"]
    rules = {match["rule"] for match in drops}
    if hits and drops:
        return "both"
    if drops:
        rule = next(rule for rule in ("ngram", "short-item", "near-copy", "canary") if rule in rules)
        return f"potable only: {rule}"
    if not hits:
        return None
    real = lambda gram: sum(len(word) > 1 and word.isalpha() for word in gram.split())
    if all(real(gram) < 4 for gram in hits):
        return "plain only: numbers and symbols"
    return "plain only: stock phrase" if matches else "plain only: other"


def show(sample, items):
    for corpus, row, hits, matches, plain in sample:
        drops = [match for match in matches if match["action"] == "drop"] or matches
        if drops:
            benchmark, number = drops[0]["item"].rsplit("/", 1)
            found = f"{drops[0]['rule']} {drops[0]['coverage']:.2f}"
        else:
            benchmark, number = sorted(plain.index[sorted(hits)[0]])[0]
            found = "plain gram"
        spread = len({place for gram in hits for place in plain.index[gram]})
        print(f"--- {corpus} · {benchmark}/{number} · {found} · plain grams in {spread} items")
        print("row : " + " ".join(texts(row)[0].split())[:420])
        print("item: " + " ".join(items[benchmark][int(number)]["question"].split())[:420])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("potable")
    parser.add_argument("--counts")
    parser.add_argument("--show")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    items = {name: sets.items(options.data, name) for name in BENCHMARKS}
    absent = [name for name, found in items.items() if found is None]
    items = {name: found for name, found in items.items() if found}
    if absent:
        print("absent: " + ", ".join(absent))
    counts = json.load(open(options.counts, encoding="utf-8")) if options.counts else {}
    plain, classes, kept = Plain(items), {}, []
    with tempfile.TemporaryDirectory(prefix="potable-natural-") as folder:
        for corpus, file in CORPORA.items():
            rows = sets.rows(options.data / file)
            found = verdicts(options.potable, pathlib.Path(folder), items, rows)
            table = collections.Counter()
            for at, row in enumerate(rows):
                hits = plain.hits(row)
                kind = class_of(hits, found[at])
                table[kind] += 1
                if kind and kind == options.show:
                    kept.append((corpus, row, hits, found[at], plain))
            classes[corpus] = table
    if options.show:
        random.Random(options.seed).shuffle(kept)
        return show(kept[: options.examples], items)
    kinds = sorted({kind for table in classes.values() for kind in table if kind})
    print(f"{'':36}" + "".join(f"{corpus:>32}" for corpus in classes))
    line = lambda name, value: print(f"{name:36}" + "".join(f"{value(corpus):>32}" for corpus in classes))
    line("rows", lambda corpus: sum(classes[corpus].values()))
    if counts:
        line("plain, counted by others", lambda corpus: counts[corpus]["rows_hit"])
    plainly = lambda kind: kind == "both" or (kind or "").startswith("plain")
    ours = lambda kind: kind == "both" or (kind or "").startswith("potable")
    line("plain", lambda corpus: sum(n for kind, n in classes[corpus].items() if plainly(kind)))
    line("potable", lambda corpus: sum(n for kind, n in classes[corpus].items() if ours(kind)))
    for kind in kinds:
        line(kind, lambda corpus: classes[corpus][kind])


if __name__ == "__main__":
    main()
