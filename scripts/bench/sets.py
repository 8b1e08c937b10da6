#!/usr/bin/env python3
"""Local copies of test sets as items in one form: sets.py DATA OUT [NAME…]

Writes OUT/NAME.jsonl (`id`, `question`, optional `options`) for every set of SETS that is below DATA, the
form that `potable blocklist build` reads without a definition, and says which are absent.
"""
import gzip
import json
import pathlib
import re
import sys

# name: (files below DATA, column of the question, column of the options)
SETS = {
    "gsm8k": (["benchmarks/gsm8k/test.jsonl"], "question", None),
    "math_test5000": (["benchmarks/math/test.jsonl"], "problem", None),
    "math500": (["benchmarks/math500/rasbt.math500_test.json"], "problem", None),
    "humaneval": (["benchmarks/humaneval/HumanEval.jsonl.gz"], "prompt", None),
    "mbpp_test": (["benchmarks/mbpp/mbpp_test.jsonl"], "prompt", None),
    "mbpp": (["benchmarks/mbpp/mbpp.jsonl"], "text", None),
    "mbpp_sanitized": (["benchmarks/mbpp/sanitized-mbpp.json"], "prompt", None),
    "mmlu": (["benchmarks/mmlu/test.jsonl"], "question", "choices"),
    "mmlu_pro": (["benchmarks/mmlu_pro/test.jsonl"], "question", "options"),
    "arc_challenge": (["benchmarks/llm-adapters/ARC-Challenge.test.json"], "instruction", None),
    "ifeval": (["benchmarks/ifeval/input_data.jsonl"], "prompt", None),
    "cruxeval": (["benchmarks/cruxeval/cruxeval.jsonl"], "code", None),
    "theoremqa": (["benchmarks/theoremqa/theoremqa.json"], "Question", None),
    "omnimath": (["benchmarks/omnimath/omni_math_num_500.jsonl"], "problem", None),
    "olymmath_en": (["benchmarks/olymmath/OlymMATH-EN-EASY.jsonl", "benchmarks/olymmath/OlymMATH-EN-HARD.jsonl"], "problem", None),
    "olymmath_zh": (["benchmarks/olymmath/OlymMATH-ZH-EASY.jsonl", "benchmarks/olymmath/OlymMATH-ZH-HARD.jsonl"], "problem", None),
    # marked sets: licence not clear, for measurements only
    "aime24": (["marked/benchmarks/aime/evalchemy.aime24.json"], "problem", None),
    "aime25": (["marked/benchmarks/aime/evalchemy.aime25.json"], "problem", None),
    "amc23": (["marked/benchmarks/qwen25math/amc23.test.jsonl"], "problem", None),
    "minerva": (["marked/benchmarks/qwen25math/minerva_math.test.jsonl"], "problem", None),
    "olympiadbench": (["marked/benchmarks/qwen25math/olympiadbench.test.jsonl"], "question", None),
    "lcb_v5": (["marked/benchmarks/livecodebench/qwq.livecodebench_v5.jsonl"], "prompt", None),
}
# the sets below DATA/benchmarks
OPEN = [name for name, (files, _, _) in SETS.items() if files[0].startswith("benchmarks/")]


def rows(path):
    """The rows of a JSON array or of JSON lines, gzipped or not."""
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
    with opened as file:
        text = file.read()
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def arc(text):
    """The copy of ARC has the harness prompt round question and options."""
    text = re.sub(r"^Please choose the correct answer to the question:\s*", "", text)
    question, _, rest = text.partition("\n\nAnswer1:")
    options = re.split(r"\s*Answer\d:\s*", rest.split("\n\nAnswer format")[0])
    return question.strip(), [option.strip() for option in options if option.strip()]


def items(data, name):
    """The items of a set; `None` if a file of it is absent."""
    files, question, options = SETS[name]
    paths = [pathlib.Path(data) / file for file in files]
    if not all(path.is_file() for path in paths):
        return None
    found = []
    for path in paths:
        for row in rows(path):
            item = {"id": f"{name}/{len(found)}", "question": row[question]}
            if name == "arc_challenge":
                item["question"], item["options"] = arc(row[question])
            elif options:
                item["options"] = row[options]
            found.append(item)
    return found


def write(data, out, names):
    """Writes the sets; gives the names of the absent ones."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    absent = []
    for name in names:
        found = items(data, name)
        if found is None:
            absent.append(name)
            continue
        lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in found)
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return absent


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    missing = write(sys.argv[1], sys.argv[2], sys.argv[3:] or list(SETS))
    print("absent: " + (", ".join(missing) or "none"))
