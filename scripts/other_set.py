#!/usr/bin/env python3
"""Recall and false alarms on benchmarks that the rules were not developed on.

other_set.py DATA ROWS POTABLE [--seed N] [--ngram N]

Half of the items of each benchmark (seeded) make one blocklist; `blocklist selftest` puts them into ROWS (chat
rows) in every disguise; the other half, as user messages, are the siblings: a sibling that is dropped is a
false alarm, unless it is the same question. Prints both, the siblings by benchmark.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent / "bench"))
import sets

OTHER = "arc_challenge theoremqa olympiadbench omnimath cruxeval ifeval minerva lcb_v5 aime24 aime25 amc23 olymmath_en".split()


def potable(options, *args):
    ran = subprocess.run([options.potable, "blocklist", *map(str, args)], capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(ran.stderr)
    return ran


def same(question, known):
    """Whether another item is the same question: the same letters and digits."""
    return re.sub(r"\W+", "", question.lower()) in known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("potable")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--ngram", type=int, default=13)
    options = parser.parse_args()
    dice, listed, left = random.Random(options.seed), [], {}
    for name in OTHER:
        items = sets.items(options.data, name)
        if items is None:
            print(f"absent: {name}")
            continue
        dice.shuffle(items)
        half = len(items) // 2
        listed += items[:half]
        left[name] = items[half:]
    known = {re.sub(r"\W+", "", item["question"].lower()) for item in listed}
    with tempfile.TemporaryDirectory(prefix="potable-other-") as folder:
        folder = pathlib.Path(folder)
        dump = lambda rows: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / "other.jsonl").write_text(dump(listed), encoding="utf-8")
        tested = potable(options, "selftest", folder / "other.jsonl", options.rows, "--seed", options.seed, "--ngram", options.ngram)
        print(f"{len(listed)} items of {len(left)} benchmarks\n{tested.stdout}{tested.stderr}")
        potable(options, "build", folder / "other.jsonl", "-o", folder / "other.blk", "--ngram", options.ngram)
        dropped, asked = 0, 0
        for name, items in left.items():
            items = [item for item in items if not same(item["question"], known)]
            turn = lambda item: [{"role": "user", "content": item["question"]}, {"role": "assistant", "content": "I do not know."}]
            (folder / "left.jsonl").write_text(dump({"id": item["id"], "messages": turn(item)} for item in items), encoding="utf-8")
            found = potable(options, "check", folder / "other.blk", folder / "left.jsonl", "--format", "jsonl").stdout
            matches = [json.loads(line) for line in found.splitlines()]
            rules = {}
            for match in matches:
                if match["action"] == "drop":
                    rules.setdefault(match["id"], set()).add(match["rule"])
            near = sum(rule == {"near-copy"} for rule in rules.values())
            print(f"siblings of {name:16} {len(rules):4} of {len(items):4} dropped, {near} by near-copy alone")
            dropped, asked = dropped + len(rules), asked + len(items)
        print(f"siblings, all {'':13} {dropped:4} of {asked:4} dropped, {100 * dropped / max(asked, 1):.2f} %")


if __name__ == "__main__":
    main()
