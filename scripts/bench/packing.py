"""Packs real-shaped lengths by `potable prep` itself, all partitions and tails, and by seqpacker.

    python3 scripts/bench/packing.py POTABLE LENGTHS [ROWS] [FOLDER]

LENGTHS is a Parquet shard of a real run (the lengths of its samples are drawn from, with a spread of
15 %, seeded). A row of so many digits is so many tokens: the vocabulary has no token of two. Prints a
line a pack length. Needs pyarrow, numpy and seqpacker.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import seqpacker

def draw(shard, rows):
    real = np.concatenate([np.array(r) for r in pq.read_table(shard)["seq_lengths"].to_pylist()])
    random = np.random.default_rng(7)
    return np.maximum(48, (random.choice(real, rows) * np.exp(random.normal(0, 0.15, rows))).astype(int))


def main():
    potable, shard = sys.argv[1:3]
    rows = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    folder = sys.argv[4] if len(sys.argv) > 4 else "bench-packing"
    os.makedirs(folder, exist_ok=True)
    lengths = draw(shard, rows)
    # A document ends with one token of its own; the number keeps rows apart.
    with open(f"{folder}/rows.jsonl", "w") as file:
        for number, length in enumerate(lengths):
            file.write(json.dumps({"text": f"{number:08d}".ljust(length - 1, "7")}) + "\n")
    print(f"{rows} lengths, mean {lengths.mean():.0f}, median {np.median(lengths):.0f}, {lengths.sum()} tokens")
    for length in (16_384, 8_192):
        recipe = f"""
seed = 1
[[source]]
name = "a"
path = "rows.jsonl"
[decontaminate]
none = true
[normalise]
format = "text"
[pack]
length = {length}
overlong = "truncate"
[output]
partition_bytes = {16 << 20}
"""
        with open(f"{folder}/recipe.toml", "w") as file:
            file.write(recipe)
        out = f"{folder}/out-{length}"
        subprocess.run([potable, "prep", f"{folder}/recipe.toml", "--out", out, "--no-progress", "--fresh"],
                       check=True, stderr=subprocess.DEVNULL)
        manifest = json.load(open(f"{out}/manifest.json"))
        tokens = manifest["tokens"]
        assert tokens["total"] == int(np.minimum(lengths, length).sum()), "a digit is a token"
        cut = np.minimum(lengths, length)
        best = {}
        for name in ("obfd", "bfd", "ffd"):
            result = seqpacker.pack_sequences(cut.tolist(), length, strategy=name)
            best[name] = result.num_bins
        fill = lambda bins: 100 * cut.sum() / (bins * length)
        others = ", ".join(f"{name} {bins} ({fill(bins):.3f} %)" for name, bins in best.items())
        print(f"length {length}: {manifest['recipe']['partitions']} partitions, potable {tokens['packs']} packs, "
              f"{100 * tokens['total'] / tokens['capacity']:.3f} % full; seqpacker {others}")


if __name__ == "__main__":
    main()
