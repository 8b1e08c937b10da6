"""Near duplicates by `potable prep` and by datatrove's MinHash, on the same rows.

    python3 scripts/bench/near.py POTABLE TEXTS [BASES] [FOLDER]

TEXTS is a JSONL file with `text` or `messages`; pieces of 60 to 600 words are cut from it (seeded). To
each second piece a copy is added in which one word in so many is another one, put in or left out. The
true Jaccard similarity of a row is the largest one with any row before it, over the sets of their
5-grams of lower-case words, by comparing all rows. Prints the share of rows that each tool drops by
that similarity, CPU seconds and peak memory. Needs datatrove with its extra `processing`, spacy and
pyarrow.
"""

import collections
import glob
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys

TOKENIZER = os.path.join(os.path.dirname(__file__), "../../tests/fixtures/bytes.tokenizer.json")
EVERY = (3, 5, 8, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 150, 300)
# Thresholds of potable; buckets and hashes of datatrove: its default, and potable's for 0.8.
NEAR = (0.7, 0.8)
BANDS = ((14, 8), (17, 15))
EDGES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0001)


def texts(path):
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            yield row["text"] if "text" in row else " ".join(m["content"] for m in row["messages"])


def edited(words, every, draw):
    """One word in `every` changed, left out, or followed by another."""
    out = []
    offset = draw.randrange(min(every, len(words)))
    for at, word in enumerate(words):
        if at % every != offset:
            out.append(word)
            continue
        other = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(7))
        out.extend(draw.choice(([other], [], [word, other])))
    return out


def make_rows(path, bases):
    draw = random.Random(7)
    rows, copies, seen = [], [], set()
    for whole in texts(path):
        words = whole.split()
        at = 0
        while at + 60 < len(words) and len(rows) < bases:
            length = draw.randrange(60, 600)
            piece = words[at : at + length]
            text = " ".join(piece)
            at += length
            # Where words stand without spaces, or in TeX, tools do not agree on what a word is.
            if sum(c.isascii() for c in text) < 0.98 * len(text) or "\\" in text:
                continue
            # What the texts say again and again is taken once.
            grams = {hash(tuple(piece[i : i + 5])) for i in range(len(piece) - 4)}
            if len(grams & seen) > len(grams) / 5:
                continue
            seen |= grams
            rows.append(text)
            if len(rows) % 2:
                copies.append(" ".join(edited(piece, draw.choice(EVERY), draw)))
        if len(rows) >= bases:
            break
    return rows, copies


def true_similarity(rows):
    """Of each row the largest Jaccard similarity with a row before it."""
    sets = []
    for row in rows:
        words = re.findall(r"[^\W\d_]+|\d+", row.lower())
        grams = {hash(tuple(words[i : i + 5])) for i in range(max(1, len(words) - 4))}
        sets.append(grams)
    places = collections.defaultdict(list)
    best = []
    for number, grams in enumerate(sets):
        shared = collections.Counter()
        for gram in grams:
            for other in places[gram]:
                shared[other] += 1
            places[gram].append(number)
        union = lambda other, both: len(grams) + len(sets[other]) - both
        best.append(max((both / union(other, both) for other, both in shared.items()), default=0.0))
    return best


def measured(command):
    """CPU seconds and peak memory in MB of a command."""
    log = open("/dev/null", "w")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def potable(binary, folder, near):
    """CPU seconds and peak memory of a run."""
    dedup = f"[dedup]\nnear = {near}\n" if near else ""
    with open(f"{folder}/recipe.toml", "w") as file:
        file.write(
            f'name = "bench"\n[[source]]\nname = "a"\npath = "rows.jsonl"\n{dedup}[decontaminate]\nnone = true\n'
            f'[tokenise]\ntokenizer = "{os.path.abspath(TOKENIZER)}"\n[normalise]\nformat = "text"\n'
            "[pack]\nlength = 16384\n[output]\npartition_bytes = 4000000\n"
        )
    out = f"{folder}/potable-{near or 'off'}"
    shutil.rmtree(out, ignore_errors=True)
    command = [binary, "prep", f"{folder}/recipe.toml", "--out", out, "--no-progress", "--threads", "1"]
    return out, measured(command)


def dropped_by_potable(out):
    """Rows that went as near duplicates, and the settings."""
    import pyarrow.parquet as pq

    dropped = set()
    for part in glob.glob(f"{out}/dropped/*.parquet"):
        table = pq.read_table(part, columns=["row", "reason"]).to_pydict()
        dropped |= {row for row, reason in zip(table["row"], table["reason"]) if reason == "dedup.near"}
    manifest = json.load(open(f"{out}/manifest.json"))
    assert not manifest["rows"]["a"]["dropped"].get("dedup.exact"), "a row stands there twice"
    return dropped, manifest["recipe"]["settings"]["dedup"]["near"]


def datatrove(folder, buckets, hashes):
    """CPU seconds and peak memory of the four blocks."""
    out = f"{folder}/datatrove-{buckets}-{hashes}"
    shutil.rmtree(out, ignore_errors=True)
    return out, measured([sys.executable, __file__, "--datatrove", folder, out, str(buckets), str(hashes)])


def dropped_by_datatrove(out):
    dropped = set()
    for part in glob.glob(f"{out}/removed/*"):
        with gzip.open(part, "rt") as file:
            dropped |= {int(json.loads(line)["id"]) for line in file}
    return dropped


def run_datatrove(folder, out, buckets, hashes):
    """The four blocks of datatrove's MinHash, in this process."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    config = MinhashConfig(n_grams=5, num_buckets=buckets, hashes_per_bucket=hashes)
    reader = JsonlReader(folder, glob_pattern="rows.jsonl", id_key="id")
    signature = MinhashDedupSignature(output_folder=f"{out}/sigs", config=config)
    pairs = MinhashDedupBuckets(input_folder=f"{out}/sigs", output_folder=f"{out}/pairs", config=config)
    cluster = MinhashDedupCluster(input_folder=f"{out}/pairs", output_folder=f"{out}/clusters", config=config)
    keep = MinhashDedupFilter(input_folder=f"{out}/clusters", exclusion_writer=JsonlWriter(f"{out}/removed"))
    # With one worker the tasks run in this process, one after the other.
    for name, pipeline, tasks in (
        ("signature", [reader, signature], 1),
        ("buckets", [pairs], buckets),
        ("cluster", [cluster], 1),
        ("filter", [reader, keep, JsonlWriter(f"{out}/kept")], 1),
    ):
        logs = f"{out}/logs/{name}"
        LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=1, logging_dir=logs).run()


def table(best, results):
    print("| true Jaccard | rows |" + "".join(f" {name} |" for name in results))
    print("|---|---|" + "---|" * len(results))
    for low, high in zip(EDGES, EDGES[1:]):
        rows = [number for number, similarity in enumerate(best) if low <= similarity < high]
        if not rows:
            continue
        shares = (sum(number in dropped for number in rows) / len(rows) for dropped in results.values())
        print(f"| {low:.2f}–{min(high, 1):.2f} | {len(rows)} |" + "".join(f" {share:.1%} |" for share in shares))
    for threshold in (0.7, 0.8):
        alike = {number for number, similarity in enumerate(best) if similarity >= threshold}
        values = []
        for dropped in results.values():
            precision = len(dropped & alike) / max(1, len(dropped))
            recall = len(dropped & alike) / len(alike)
            values.append(f" {precision:.1%} / {recall:.1%} |")
        print(f"| precision / recall at {threshold} | {len(alike)} |" + "".join(values))


def main():
    binary, path = sys.argv[1:3]
    bases = int(sys.argv[3]) if len(sys.argv) > 3 else 4000
    folder = sys.argv[4] if len(sys.argv) > 4 else "bench-near"
    os.makedirs(folder, exist_ok=True)
    pieces, copies = make_rows(path, bases)
    rows = pieces + copies
    with open(f"{folder}/rows.jsonl", "w") as file:
        for number, row in enumerate(rows):
            file.write(json.dumps({"id": str(number), "text": row}, ensure_ascii=False) + "\n")
    size = os.path.getsize(f"{folder}/rows.jsonl") / 1e6
    print(f"{len(rows)} rows, {size:.1f} MB, {len(copies)} of them edited copies")
    # The peak memory of a child counts that of its parent at the start, so the runs come before the rest.
    _, off = potable(binary, folder, None)
    ours = [potable(binary, folder, near) for near in NEAR]
    theirs = [datatrove(folder, *bands) for bands in BANDS]
    results, costs = {}, {"potable, near off": off}
    for near, (out, cost) in zip(NEAR, ours):
        dropped, config = dropped_by_potable(out)
        name = f"potable {near} ({config['bands']} × {config['rows']})"
        results[name], costs[name] = dropped, cost
    for (buckets, hashes), (out, cost) in zip(BANDS, theirs):
        name = f"datatrove {buckets} × {hashes}"
        results[name], costs[name] = dropped_by_datatrove(out), cost
    best = true_similarity(rows)
    table(best, results)
    print("\n| run | CPU s | MB text per CPU-s | peak MB |\n|---|---|---|---|")
    for name, (cpu, memory) in costs.items():
        print(f"| {name} | {cpu:.2f} | {size / cpu:.2f} | {memory:.0f} |")
    for name in results:
        if name.startswith("potable"):
            print(f"near alone, {name}: {costs[name][0] - off[0]:.2f} CPU s")


if __name__ == "__main__":
    if sys.argv[1] == "--datatrove":
        run_datatrove(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
