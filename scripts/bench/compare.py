#!/usr/bin/env python3
"""Scan speed beside peers, in one run: compare.py LOAD.jsonl DATA [options]

LOAD is chat rows (`messages`), DATA the folder with `benchmarks/` (see sets.py). Every tool reads the same
bytes: LOAD's texts as rows of `id` and `text`. Prints MB of that file per CPU second (user and system, of the
whole process), peak memory, and how many times slower than potable each is. A tool that is not there is named
and left out. Run it on a quiet machine.

  --potable BIN   default: target/release/potable
  --python PY     a Python with `decontaminate` (decon) installed: it needs Python 3.12
  --decon BIN     instead, a release build of decon
  --decon-mb N    decon reads the first N MB only (default 100); its index is timed apart and taken off
  --probe BIN     the plain 13-gram probe, built
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import sets

DECON = """
import decon, sys
config = decon.Config(training_dir=sys.argv[1], evals_dir=sys.argv[2], report_output_dir=sys.argv[3], worker_threads=1)
decon.detect(config)
"""
XXH3 = """
import sys, xxhash
state = xxhash.xxh3_64()
with open(sys.argv[1], "rb", buffering=0) as file:
    while block := file.read(1 << 20):
        state.update(block)
print(state.hexdigest())
"""


def measure(command, allowed=(0,)):
    """CPU seconds, wall seconds and peak MB of a process."""
    begun = time.monotonic()
    child = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begun
    if child.returncode not in allowed:
        sys.exit(f"{command[0]}: exit {child.returncode}\n{errors.decode(errors='replace')[-2000:]}")
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024


def texts(load, whole, part, limit):
    """Writes the rows of `load` as `id` and `text`, and the first `limit` bytes of them to another file."""
    size = 0
    with open(load, encoding="utf-8") as rows, open(whole, "wb") as all_rows, open(part, "wb") as some:
        for row in map(json.loads, rows):
            text = "\n\n".join(message["content"] for message in row["messages"])
            line = (json.dumps({"id": row["id"], "text": text}, ensure_ascii=False) + "\n").encode()
            all_rows.write(line)
            if size < limit:
                some.write(line)
            size += len(line)


def references(items, out):
    """The items as the probe and decon read them."""
    for name in ("probe", "decon"):
        (out / name).mkdir()
    for file in sorted(items.glob("*.jsonl")):
        rows = [json.loads(line) for line in open(file, encoding="utf-8")]
        probe = (json.dumps({"id": row["id"], "prompt": row["question"]}, ensure_ascii=False) + "\n" for row in rows)
        (out / "probe" / file.name).write_text("".join(probe), encoding="utf-8")
        decon = (
            json.dumps({"doc_id": at, "eval_key": file.stem, "question": row["question"]}, ensure_ascii=False) + "\n"
            for at, row in enumerate(rows)
        )
        (out / "decon" / file.name).write_text("".join(decon), encoding="utf-8")


def prepare(options, out):
    """Writes what the tools read. In a process of its own: the peak memory of a child counts from the
    memory of its parent on, which stays small this way."""
    absent = sets.write(options.data, out / "items", sets.OPEN)
    if absent:
        print("absent sets: " + ", ".join(absent), flush=True)
    references(out / "items", out)
    texts(options.load, out / "corpus" / "rows.jsonl", out / "part" / "rows.jsonl", options.decon_mb * 1e6)


class Table:
    def __init__(self):
        self.rows, self.absent = [], []

    def add(self, name, size, used, note=""):
        cpu, wall, peak = used
        self.rows.append((name, size / 1e6 / max(cpu, 1e-9), cpu, wall, peak, size / 1e6, note))

    def show(self):
        ours = self.rows[0][1]
        print(f"{'':34} {'MB/CPU-s':>9} {'CPU s':>7} {'wall s':>7} {'peak MB':>8} {'MB read':>8} {'potable is':>11}")
        for name, speed, cpu, wall, peak, size, note in self.rows:
            times = f"{ours / speed:9.1f} ×"
            print(f"{name:34} {speed:9.1f} {cpu:7.2f} {wall:7.2f} {peak:8.0f} {size:8.0f} {times:>11}  {note}".rstrip())
        for name in self.absent:
            print(f"absent: {name}")


def run_decon(options, out, part, table):
    empty = out / "empty"
    empty.mkdir()
    (empty / "rows.jsonl").write_text(json.dumps({"id": "none", "text": "nothing to see here"}) + "\n")
    (out / "report").mkdir()
    if options.decon:
        command = lambda rows: [options.decon, "detect", "--training-dir", rows, "--evals-dir", out / "decon", "--report-output-dir", out / "report", "--worker-threads", "1"]
    else:
        script = out / "run_decon.py"
        script.write_text(DECON)
        command = lambda rows: [options.python, script, rows, out / "decon", out / "report"]
    index = measure(command(empty))
    scan = measure(command(part.parent))
    size = part.stat().st_size
    table.add("decon", size, scan, "with its index")
    table.add("decon, without its index", size, (scan[0] - index[0], scan[1] - index[1], scan[2]), f"index {index[0]:.1f} CPU s")


def has_module(python, module):
    if not python or not shutil.which(python):
        return False
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def peers(options, out, whole, part, size, table):
    if options.probe and pathlib.Path(options.probe).is_file():
        table.add("probe: 13-grams and short items", size, measure([options.probe, out / "probe", whole.parent, out / "hits", "1", "1", "3"]))
    else:
        table.absent.append("probe (--probe BIN)")
    if options.decon or has_module(options.python, "decon"):
        run_decon(options, out, part, table)
    else:
        table.absent.append("decon (--python PY with `decontaminate`, or --decon BIN)")
    if shutil.which("wc"):
        table.add("wc -w", size, measure(["env", "LC_ALL=C.UTF-8", "wc", "-w", whole]))
    else:
        table.absent.append("wc")
    python = next((one for one in (options.python, sys.executable) if has_module(one, "xxhash")), None)
    if shutil.which("xxhsum"):
        table.add("xxh3 (xxhsum -H3)", size, measure(["xxhsum", "-H3", whole]))
    elif python:
        table.add("xxh3 (Python's xxhash)", size, measure([python, "-c", XXH3, whole]))
    else:
        table.absent.append("xxhsum, or a Python with `xxhash`")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load")
    parser.add_argument("data")
    parser.add_argument("--potable", default="target/release/potable")
    parser.add_argument("--python")
    parser.add_argument("--decon")
    parser.add_argument("--decon-mb", type=float, default=100)
    parser.add_argument("--probe")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="potable-bench-") as folder:
        out = pathlib.Path(folder)
        whole, part = out / "corpus" / "rows.jsonl", out / "part" / "rows.jsonl"
        whole.parent.mkdir()
        part.parent.mkdir()
        writer = multiprocessing.get_context("fork").Process(target=prepare, args=(options, out))
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit("the files to read could not be written")
        size = os.path.getsize(whole)
        blocklist = out / "all.blk"
        files = sorted((out / "items").glob("*.jsonl"))
        built = measure([options.potable, "blocklist", "build", *files, "-o", blocklist])
        empty = out / "one.jsonl"
        empty.write_text('{"id": "a", "text": "nothing to see here"}\n')
        check = [options.potable, "blocklist", "check", "--threads", "1", blocklist]
        one = out / "one.txt"
        one.write_text("How many legs have nine spiders and a beetle in all?\n")
        measure([options.potable, "blocklist", "build", one, "-o", out / "one.blk"])
        loads = [measure([*check, empty]) for _ in range(15)]
        least = [measure([*check[:-1], out / "one.blk", empty]) for _ in range(15)]
        load = 1e3 * (min(used[1] for used in loads) - min(used[1] for used in least))
        table = Table()
        measure([*check, whole], (0, 1))
        table.add("potable check, all rules", size, measure([*check, whole], (0, 1)))
        table.add("potable check, the chat rows", os.path.getsize(options.load), measure([*check, options.load], (0, 1)))
        peers(options, out, whole, part, size, table)
        items = sum(sum(1 for _ in open(file, "rb")) for file in files)
        print(f"blocklist: {len(files)} sets, {items} items, {blocklist.stat().st_size / 1e6:.1f} MB, built in {built[1]:.1f} s")
        print(f"index load: {load:.1f} ms (a check of one row, least of 15, less the same with a blocklist of one item)")
        table.show()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
