#!/usr/bin/env python3
"""Looks at shards as a person would: opens them with pyarrow, DuckDB and datasets, decodes one pack with
the trained spans marked, and shows that length and place are not correlated.

    scripts/look.py OUT_DIR TOKENIZER_JSON [ROW]      (needs pyarrow, duckdb, datasets, tokenizers, numpy)
"""
import glob
import os
import sys
import tempfile

import duckdb
import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer

out, tokenizer = sys.argv[1:3]
row = int(sys.argv[3]) if len(sys.argv) > 3 else 0
shards = sorted(glob.glob(out + "/shards/**/*.parquet", recursive=True))
print("pyarrow:", ", ".join(f"{f.name} {f.type}" for f in pq.read_schema(shards[0])))
query = "select count(*) packs, sum(len(input_ids)) tokens, sum(len(seq_lengths)) samples, max(len(input_ids)) longest from read_parquet(?)"
print("duckdb:", dict(zip(("packs", "tokens", "samples", "longest"), duckdb.execute(query, [shards]).fetchone())))
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp()
import datasets  # noqa: E402, after the cache folder is set

loaded = datasets.load_dataset("parquet", data_files=shards, split="train")
print("datasets:", loaded.num_rows, "rows", loaded.column_names)

places, lengths, within, within_lengths = [], [], [], []
for shard in shards:
    table = pq.read_table(shard, columns=["seq_lengths"])
    for index, sizes in enumerate(table["seq_lengths"].to_pylist()):
        for at, size in enumerate(sizes):
            places.append(index / max(table.num_rows - 1, 1))
            lengths.append(size)
            if len(sizes) > 1:
                within.append(at / (len(sizes) - 1))
                within_lengths.append(size)
print(f"correlation of length and place in the shard {np.corrcoef(places, lengths)[0, 1]:+.4f}, "
      f"in the pack {np.corrcoef(within, within_lengths)[0, 1]:+.4f}, over {len(lengths)} samples")

engine = Tokenizer.from_file(tokenizer)
pack = {name: pq.read_table(shards[0])[name][row].as_py() for name in ("input_ids", "labels", "seq_lengths", "sample_ids")}
ids, labels, start = pack["input_ids"], pack["labels"], 0
assert len(ids) == len(labels) == sum(pack["seq_lengths"])
for name, length in zip(pack["sample_ids"], pack["seq_lengths"]):
    print(f"\n--- {name}, {length} tokens")
    span, trained = [], False
    assert labels[start] == -100
    for token, label in list(zip(ids, labels))[start:start + length] + [(None, None)]:
        now = label not in (-100, None)
        if token is None or now != trained:
            text = engine.decode(span, skip_special_tokens=False)
            print(f"[[{text}]]" if trained else text, end="")
            span, trained = [], now
        if token is not None:
            assert label in (-100, token)
            span.append(token)
    start += length
print()
