#!/usr/bin/env python3
"""Lays out small repositories as the real ones are on the Hub, for every source, benchmark and tokenizer of
the built-in recipes, and serves them on the loopback.

    scripts/hub_fixtures.py make OUT [--shared DIR]        (needs pyarrow and git)
    scripts/hub_fixtures.py serve OUT [--port 8090]        (needs olah: pip install olah)

Rows come from DIR/data where it has fixtures, and are made up with a seed in the schema of the real corpus
where it has none; some of them repeat benchmark items, so that drops show. GPQA's questions are made up.
Then, in another terminal:

    HF_ENDPOINT=http://127.0.0.1:8090 HF_HOME=/tmp/hf potable prep think-sft-240k --limit 200
"""
import argparse
import base64
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

SEED = 20261130
# Commits that recipes and cards name in full; a repository of this name gets them.
ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = """river stone seven window lantern green mountain quiet paper engine garden copper north signal winter
bridge candle market forest harbour pencil violin mirror ladder orchard station pocket thunder velvet compass
meadow anchor basket cellar desert feather glacier hammer island jacket kettle lemon marble needle oyster
pebble quarry ribbon saddle timber umbrella valley willow yarn zebra apple border circle dragon""".split()


def sentence(rng, words):
    text = " ".join(rng.choice(WORDS) + ("s" if rng.random() < 0.3 else "") for _ in range(words))
    return text[0].upper() + text[1:] + "."


def prose(rng, sentences):
    return " ".join(sentence(rng, rng.randint(8, 16)) for _ in range(sentences))


def question(rng, about):
    a, b = rng.randint(2, 99_999), rng.randint(2, 99_999)
    return f"{about} {rng.randint(0, 10**9)}: {sentence(rng, 14)} What is {a} and {b} together?", a + b


def think(rng, answer, open_tag="<think>\n", close_tag="\n</think>\n\n"):
    return f"{open_tag}{prose(rng, 4)}{close_tag}{prose(rng, 1)} The answer is {answer}."


# --- bytes of files -----------------------------------------------------------------------------------

def table(rows, like=None):
    """Rows as a table; with `like`, in the schema of that table."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=like.schema if like else None)


def parquet(rows, like=None):
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table(rows, like), out)
    return out.getvalue()


def arrow_stream(rows):
    import pyarrow as pa

    out, made = io.BytesIO(), table(rows)
    with pa.ipc.new_stream(out, made.schema) as writer:
        writer.write_table(made)
    return out.getvalue()


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def rows_of(data, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name.endswith(".parquet"):
        return pq.read_table(io.BytesIO(data)).to_pylist()
    if name.endswith(".arrow"):
        return pa.ipc.open_stream(io.BytesIO(data)).read_all().to_pylist()
    if name.endswith(".json"):
        return json.loads(data)
    return [json.loads(line) for line in data.splitlines() if line.strip()]


# --- benchmarks ---------------------------------------------------------------------------------------

class Benchmarks:
    """Items of the benchmarks: real ones where the shared folder has them, else made up."""

    def __init__(self, shared, rng):
        self.folder, self.rng = shared / "data", rng

    def lines(self, path):
        path = self.folder / path
        if not path.exists():
            return None
        text = gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text()
        if text.lstrip().startswith("[") and path.suffix == ".json":
            return json.loads(text)
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def made_up(self, count, about, row):
        return [row(i, *question(self.rng, about)) for i in range(count)]

    def gsm8k(self):
        rows = self.lines("benchmarks/gsm8k/test.jsonl")
        rows = rows or self.made_up(40, "Shop", lambda i, q, a: {"question": q, "answer": f"So.\n#### {a}"})
        return [{"question": r["question"], "answer": r["answer"]} for r in rows]

    def math500(self):
        rows = self.lines("benchmarks/math500/rasbt.math500_test.json")
        return rows or self.made_up(40, "Problem", lambda i, q, a: {
            "problem": q, "solution": prose(self.rng, 2), "answer": str(a), "subject": "Algebra", "level": 2,
            "unique_id": f"test/algebra/{i}.json"})

    def aime(self, year):
        rows = self.lines("marked/benchmarks/aime/" + ("evalchemy.aime24.json" if year == 2024 else "still.AIME25.jsonl"))
        def text(row):
            return next(row[key] for key in ("problem", "question", "Problem") if key in row)
        texts = [text(r) for r in rows] if rows else [question(self.rng, "Contest")[0] for _ in range(30)]
        return [{"id": i, "problem": t, "solution": "", "answer": "1", "url": "", "year": str(year)}
                for i, t in enumerate(texts)]

    def humaneval(self):
        rows = self.lines("benchmarks/humaneval/HumanEval.jsonl.gz")
        return rows or self.made_up(30, "Code", lambda i, q, a: {
            "task_id": f"HumanEval/{i}", "prompt": f'def f{i}(x):\n    """{q}"""\n', "canonical_solution": "",
            "test": "", "entry_point": f"f{i}"})

    def mbpp(self):
        rows = self.lines("benchmarks/mbpp/mbpp.jsonl")
        rows = rows or self.made_up(40, "Write a function for", lambda i, q, a: {"text": q, "code": "pass", "task_id": i,
                                                                            "test_list": []})
        keys = ("task_id", "text", "code", "test_list")
        return [{key: row[key] for key in keys} for row in rows if 10 < row["task_id"] <= 510 or len(rows) < 100]

    def mmlu_pro(self):
        rows = self.lines("benchmarks/mmlu_pro/test.jsonl")
        rows = rows or self.made_up(60, "Exam", lambda i, q, a: {"question_id": i, "question": q,
                                                                 "options": [str(a + k) for k in range(10)]})
        keys = ("question_id", "question", "options")
        return [{key: row[key] for key in keys} for row in rows]

    def arc(self):
        rows = self.lines("benchmarks/llm-adapters/ARC-Challenge.test.json")
        if not rows:
            rows = [{"instruction": f"x: {question(self.rng, 'School')[0]}\n\nAnswer1: a. Answer2: b."} for _ in range(40)]
        out = []
        for i, row in enumerate(rows):
            stem, options = row["instruction"].split(": ", 1)[1].split("\n\nAnswer1: ", 1)
            parts = options.split("\n\n")[0]
            for k in range(2, 7):
                parts = parts.replace(f" Answer{k}: ", "\0")
            texts = parts.split("\0")
            out.append({"id": f"ARC_{i}", "question": stem, "answerKey": "A",
                        "choices": {"text": texts, "label": list("ABCDEF")[:len(texts)]}})
        return out

    def gpqa(self):
        """Made up: the real questions may not be shown anywhere."""
        rng, rows = random.Random(SEED + 1), []
        for i in range(24):
            text, answer = question(rng, "Spectrum")
            wrong = {f"Incorrect Answer {k}": str(answer + 7 * k) for k in (1, 2, 3)}
            rows.append({"Pre-Revision Question": text, "Question": f"{text}\nState it, \"rounded\".", **wrong,
                         "Correct Answer": str(answer), "Record ID": f"rec{i:04}", "High-level domain": "Physics",
                         "Subdomain": "Optics", "Canary String": f"gpqa:made-up:{i:04}"})
        return rows

    def livecodebench(self):
        rows = self.lines("marked/benchmarks/livecodebench/qwq.livecodebench_v5.jsonl")
        texts = [t for t in map(contest_text, rows or []) if t]
        texts = texts or [question(self.rng, "Contest task")[0] for _ in range(60)]
        return [{"question_title": f"T{i}", "question_content": t, "platform": "atcoder", "question_id": f"q{i}",
                 "contest_id": "c", "contest_date": "2025-01-01T00:00:00", "starter_code": "", "difficulty": "easy",
                 "public_test_cases": "[]", "private_test_cases": "x" * 2000, "metadata": "{}"}
                for i, t in enumerate(texts)]


def contest_text(row):
    for key in ("question_content", "prompt", "question", "content"):
        if isinstance(row.get(key), str):
            return row[key]
    return None


def benchmark_repos(items):
    lcb = items.livecodebench()
    cut = [lcb[k::6] for k in range(6)]
    names = ["test.jsonl"] + [f"test{k}.jsonl" for k in range(2, 7)]
    gpqa, out = items.gpqa(), io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(gpqa[0]))
    writer.writeheader()
    writer.writerows(gpqa)
    return {
        "HuggingFaceH4/MATH-500": {"test.jsonl": jsonl(items.math500())},
        "HuggingFaceH4/aime_2024": {"data/train-00000-of-00001.parquet": parquet(items.aime(2024))},
        "yentinglin/aime_2025": {"data/train-00000-of-00001.parquet": parquet(items.aime(2025))},
        "openai/openai_humaneval": {"openai_humaneval/test-00000-of-00001.parquet": parquet(items.humaneval())},
        "google-research-datasets/mbpp": {"full/test-00000-of-00001.parquet": parquet(items.mbpp())},
        "TIGER-Lab/MMLU-Pro": {"data/test-00000-of-00001.parquet": parquet(items.mmlu_pro())},
        "allenai/ai2_arc": {"ARC-Challenge/test-00000-of-00001.parquet": parquet(items.arc())},
        "Idavidrein/gpqa": {"gpqa_diamond.csv": out.getvalue().encode()},
        "livecodebench/code_generation_lite": {n: jsonl(part) for n, part in zip(names, cut)},
        "openai/gsm8k": {"main/test-00000-of-00001.parquet": parquet(items.gsm8k())},
    }


# --- corpora ------------------------------------------------------------------------------------------

class Corpora:
    def __init__(self, shared, rng, leaked):
        self.folder = shared / "data/marked/corpora/hf_schema_fixtures"
        self.rng, self.leaked = rng, leaked

    def fixture(self, repo):
        """Files of the fixture of a repository, by path."""
        base = self.folder / repo.replace("/", "__")
        return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}

    def prompts(self, count, about):
        """Made-up prompts with answers; each tenth one is an item of a benchmark."""
        made = [question(self.rng, about) for _ in range(count)]
        leak = lambda i: self.leaked[self.rng.randrange(len(self.leaked))] if i % 10 == 3 else made[i][0]
        return [(leak(i), made[i][1]) for i in range(count)]

    def openr1(self):
        files = self.fixture("open-r1/OpenR1-Math-220k")
        rows = []
        for i, (prompt, answer) in enumerate(self.prompts(120, "Sum")):
            good = i % 7 != 0
            rows.append({"problem": prompt, "solution": prose(self.rng, 2), "answer": str(answer), "problem_type": "Algebra",
                         "question_type": "math-word-problem", "source": "olympiads", "uuid": f"u{i}",
                         "is_reasoning_complete": [False, good], "correctness_math_verify": [True, good],
                         "generations": [think(self.rng, 0), think(self.rng, answer)], "correctness_llama": None,
                         "finish_reasons": None, "correctness_count": 1,
                         "messages": [{"content": prompt, "role": "user"}]})
        schema = {"correctness_llama": [True], "finish_reasons": ["stop"]}
        like = table([{**rows[0], **schema}])
        files["data/train-00002-of-00010.parquet"] = parquet(rows, like)
        files.setdefault("all/train-00000-of-00020.parquet", parquet(rows, like))
        files["extended/train-00000-of-00010.parquet"] = parquet(rows[:20], like)
        return files

    def opencode(self):
        files = self.fixture("nvidia/OpenCodeReasoning")
        base = {"source": "codeforces", "license": "cc-by-4.0", "difficulty": "EASY"}
        rows, joined = [], []
        for i, (prompt, answer) in enumerate(self.prompts(160, "Task")):
            data = ["taco", "apps", "code_contests"][i % 3]
            half = "train" if i % 4 else ("test" if i % 8 else "valid")
            answer = f"{think(self.rng, answer)}\n```python\nprint({answer})\n```"
            rows.append({"id": f"q{i:05}", "input": prompt, "output": answer, "dataset": data, "split": half,
                         "solution": "print(1)", **base})
        for i in range(120):
            data = ["taco", "apps", "code_contests", "open-r1/codeforces"][i % 4]
            index = i if i % 9 else 10**6 + i
            joined.append({"id": f"j{i:05}", "input": "-", "output": think(self.rng, i), "dataset": data, "split": "train",
                           "solution": "print(1)", "index": str(index), **base})
        # A training row that repeats a held-out problem.
        held = [r for r in rows if r["split"] != "train"]
        rows += [{**r, "split": "train", "id": f"again-{r['id']}"} for r in held[:6]]
        files["split_0/train-00001-of-00030.parquet"] = parquet(rows)
        files["split_1/train-00001-of-00010.parquet"] = parquet(joined)
        return files

    def openthoughts(self):
        files, rows = self.fixture("open-thoughts/OpenThoughts-114k"), []
        for i, (prompt, answer) in enumerate(self.prompts(150, "Study")):
            camel = i % 2 == 0
            rows.append({"problem": prompt, "deepseek_reasoning": prose(self.rng, 5), "deepseek_solution": f"It is {answer}.",
                         "ground_truth_solution": None, "domain": "chemistry" if camel else "math",
                         "source": "camel-ai/chemistry" if camel else "numina_math", "test_cases": None, "starter_code": None})
        like = table([{k: v or "x" for k, v in rows[0].items()}])
        files["metadata/train-00001-of-00012.parquet"] = parquet(rows, like)
        return files

    def openthoughts3(self):
        files, rows = self.fixture("open-thoughts/OpenThoughts3-1.2M"), []
        for i, (prompt, answer) in enumerate(self.prompts(150, "Lab")):
            text = think(self.rng, answer) if i % 11 else f"<think>\n{prose(self.rng, 3)}"
            rows.append({"difficulty": 5, "source": "organic-chemistry-questions", "domain": ["science", "code"][i % 5 == 0],
                         "conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": text}]})
        files["data/train-00001-of-00120.parquet"] = parquet(rows)
        return files

    def smoltalk2(self):
        files = self.fixture("HuggingFaceTB/smoltalk2")
        for name, thinks in (("smoltalk_systemchats_Qwen3_32B_think", True),
                             ("smoltalk_smollm3_everyday_conversations_no_think", False)):
            rows = []
            for prompt, answer in self.prompts(80, "Chat"):
                text = think(self.rng, answer) if thinks else f"It is {answer}."
                rows.append({"messages": [{"content": prompt, "role": "user"}, {"content": text, "role": "assistant"}],
                             "chat_template_kwargs": {"custom_instructions": sentence(self.rng, 9) if thinks else "",
                                                      "enable_thinking": thinks, "python_tools": [], "xml_tools": []},
                             "source": name})
            like = table([{**rows[0], "chat_template_kwargs": {**rows[0]["chat_template_kwargs"], "python_tools": ["x"],
                                                               "xml_tools": ["x"]}}])
            files[f"SFT/{name}-00000-of-00001.parquet"] = parquet(rows, like)
        return files

    def tagged(self, count):
        for prompt, answer in self.prompts(count, "Riddle"):
            text = (f"<|begin_of_thought|>\n\n{prose(self.rng, 4)}\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n"
                    f"It is {answer}.\n\n<|end_of_solution|>")
            yield {"system": "Think first.", "conversations": [{"from": "user", "value": prompt},
                                                               {"from": "assistant", "value": text}]}

    def stratos(self):
        files = self.fixture("bespokelabs/Bespoke-Stratos-17k")
        files["data/train-00001-of-00002.parquet"] = parquet(list(self.tagged(60)))
        return files

    def sky(self):
        name = "Sky-T1_data_17k.json"
        old = self.fixture("NovaSky-AI/Sky-T1_data_17k").get(name, b"[]")
        return {name: json.dumps(json.loads(old) + list(self.tagged(60)), indent=1).encode()}

    def tulu(self):
        files, rows = self.fixture("allenai/tulu-3-sft-mixture"), []
        for i, (prompt, answer) in enumerate(self.prompts(80, "Ask")):
            rows.append({"id": f"t{i}", "source": "ai2-adapt-dev/oasst1_converted",
                         "messages": [{"content": prompt, "role": "user"}, {"content": f"It is {answer}.", "role": "assistant"}]})
        files["data/train-00001-of-00006.parquet"] = parquet(rows)
        return files

    def document(self, prompt):
        return f"{prose(self.rng, 4)} {prompt} {prose(self.rng, 4)}"

    def texts(self, count):
        return [self.document(prompt) for prompt, _ in self.prompts(count, "Note")]

    def web(self):
        rows = [{"text": t, "id": f"d{i}", "dump": "CC-MAIN-2024-10", "url": "https://example.org", "file_path": "s3://x",
                 "language": "en", "language_score": 0.9, "token_count": 100, "score": 3.5, "int_score": 4}
                for i, t in enumerate(self.texts(150))]
        old = self.fixture("HuggingFaceFW/fineweb-edu")
        files = {p.replace("sample/10BT", "sample/100BT"): data for p, data in old.items()}
        files["sample/100BT/001_00000.parquet"] = parquet(rows)
        return {**old, **files}

    def with_fixture(self, repo, path, rows):
        return {**{path: parquet(rows)}, **self.fixture(repo)}

    def plain(self):
        """Corpora of plain text."""
        cosmo = [{"prompt": "Write.", "text": t, "token_length": 90, "audience": "general", "format": "blogpost",
                  "seed_data": "x"} for t in self.texts(80)]
        maths = [{"url": "https://example.org", "text": t, "score": 4.2, "int_score": 4} for t in self.texts(80)]
        code = [{"max_stars_repo_path": "a.py", "max_stars_repo_name": "a/b", "max_stars_count": 1, "id": str(i),
                 "content": f"<reponame>a/b<gh_stars>1\n# {t}\nprint({i})\n"} for i, t in enumerate(self.texts(80))]
        chat = [{"messages": [{"content": p, "role": "user"}, {"content": f"It is {a}.", "role": "assistant"}],
                 "source": "everyday-conversations"} for p, a in self.prompts(80, "Talk")]
        ultra = [{"content": t, "score": 0.9, "source": "cc"} for t in self.texts(80)]
        fine = "data/ultrafineweb_en/ultrafineweb-en-part-0002-of-2048.parquet"
        return {
            "HuggingFaceFW/fineweb-edu": self.web(),
            "HuggingFaceTB/smollm-corpus": self.with_fixture("HuggingFaceTB/smollm-corpus",
                                                             "cosmopedia-v2/train-00001-of-00104.parquet", cosmo),
            "HuggingFaceTB/finemath": self.with_fixture("HuggingFaceTB/finemath",
                                                        "finemath-4plus/train-00001-of-00064.parquet", maths),
            "HuggingFaceTB/smoltalk": self.with_fixture("HuggingFaceTB/smoltalk", "data/all/train-00001-of-00009.parquet", chat),
            "bigcode/starcoderdata": self.with_fixture("bigcode/starcoderdata", "python/train-00001-of-00059.parquet", code),
            "openbmb/Ultra-FineWeb": self.with_fixture("openbmb/Ultra-FineWeb", fine, ultra),
            "openbmb/UltraData-Math": {
                f"data/UltraData-Math-L3/{kind}/part-{n:05}.parquet": parquet(
                    [{"uid": f"{kind}{n}{i}", "content": t} for i, t in enumerate(self.texts(60))])
                for kind in ("QA-Synthetic", "Conversation-Synthetic") for n in range(2)},
            "openbmb/UltraData-Code": {
                f"data/UltraData-Code-L3/py/UltraData-Code-L3-py-part-{n:05}-of-00147.parquet": parquet(
                    [{"uuid": f"{n}{i}", "task": t, "solution": "pass", "full_content": f"{t}\n\npass\n"}
                     for i, t in enumerate(self.texts(60))]) for n in (1, 2)},
        }

    def ultradata_sft(self):
        files = {}
        for domain in ("Math", "Code", "Knowledge", "IF"):
            rows = []
            for i, (prompt, answer) in enumerate(self.prompts(60, domain)):
                turn = {"role": "assistant", "content": f"It is {answer}.", "reasoning_content": prose(self.rng, 4)}
                if i % 12 == 5:
                    del turn["reasoning_content"]
                rows.append({"uid": f"{domain}_think_{i:07}", "messages": [{"role": "user", "content": prompt}, turn],
                             "source": "made-up", "domain": domain, "think_type": "think"})
            files[f"data/think/{domain}/{domain}_think_part-001-of-300.jsonl"] = jsonl(rows)
        for path, data in self.fixture("openbmb/UltraData-SFT-2605").items():
            if path.startswith("data/Math/think"):
                files["data/think/Math/Math_think_part-000-of-300.jsonl"] = data
        return files

    # Sources of the joined prompts. Their rows are found by position, so there are as many as in reality.

    def padded(self, rows, count, blank):
        return rows + [blank(i) for i in range(len(rows), count)]

    def apps(self):
        rows = []
        for i, (prompt, answer) in enumerate(self.prompts(150, "Program")):
            rows.append({"id": i, "question": prompt, "solutions": json.dumps([f"print({answer})"]) if i % 8 else "",
                         "input_output": "", "difficulty": "interview", "url": f"https://example.org/{i}", "starter_code": ""})
        old = rows_of(self.fixture("codeparrot/apps").get("train.jsonl", b""), ".jsonl")
        blank = lambda i: {**rows[0], "id": i, "question": f"Blank problem {i}.", "solutions": ""}
        return {"train.jsonl": jsonl(self.padded(old + rows, 5000, blank)), "test.jsonl": jsonl(rows[:20]), "apps.py": b"#\n"}

    def taco(self):
        names = ["question", "solutions", "starter_code", "input_output", "difficulty", "raw_tags", "name", "source", "tags",
                 "skill_types", "url", "Expected Auxiliary Space", "time_limit", "date", "picture_num", "memory_limit",
                 "Expected Time Complexity"]
        row = lambda **some: {**dict.fromkeys(names), **some}
        rows = [row(question=prompt, solutions=json.dumps([f"print({answer})"]) if i % 8 else "", starter_code="",
                    source="codeforces", picture_num="0" if i % 6 else "2") for i, (prompt, answer) in
                enumerate(self.prompts(150, "Program"))]
        old = rows_of(self.fixture("BAAI/TACO").get("train/data-00000-of-00009.arrow", arrow_stream([])), ".arrow")
        rows = self.padded(old + rows, 25443, lambda i: row(question=f"Blank problem {i}.", solutions=""))
        like = table([dict.fromkeys(names, "x")])
        cuts = [rows[k * 2827:(k + 1) * 2827] for k in range(9)]
        files = {f"train/data-{k:05}-of-00009.arrow": self.stream(part, like) for k, part in enumerate(cuts)}
        files["test/data-00000-of-00001.arrow"] = self.stream(rows[:20], like)
        files["ALL/train-00000-of-00001.parquet"] = parquet(rows[:300], like)
        return files

    def stream(self, rows, like):
        import pyarrow as pa

        out, made = io.BytesIO(), table(rows, like)
        with pa.ipc.new_stream(out, made.schema) as writer:
            writer.write_table(made)
        return out.getvalue()

    def contests(self):
        made = self.prompts(200, "Program")
        row = lambda i, text: {"name": f"n{i}", "description": text, "source": 2, "difficulty": 7,
                               "solutions": {"language": [2, 3], "solution": ["int main(){}", "print(1)"]}}
        rows = [row(i, prompt) for i, (prompt, _) in enumerate(made)]
        rows = self.padded(rows, 13328, lambda i: row(i, f"Blank problem {i}."))
        return {"data/train-00000-of-00002.parquet": parquet(rows[:7000]),
                "data/train-00001-of-00002.parquet": parquet(rows[7000:]),
                "data/test-00000-of-00001.parquet": parquet(rows[:20]), "data/valid-00000-of-00001.parquet": parquet(rows[:20])}

    def codeforces(self):
        made = self.prompts(200, "Program")
        row = lambda i, text: {"id": f"{i}/A", "title": f"T{i}", "description": text, "input_format": "One number.",
                               "output_format": "One number.", "note": None if i % 2 else "Mind the gap.",
                               "examples": [{"input": "1", "output": "2"}] if i % 3 else None, "editorial": None}
        rows = [row(i, prompt) for i, (prompt, _) in enumerate(made)]
        rows = self.padded(rows, 9556, lambda i: row(i, f"Blank problem {i}."))
        like = table([{**rows[1], "note": "x", "editorial": "x"}])
        return {"data/train-00000-of-00001.parquet": parquet(rows, like), "data/test-00000-of-00001.parquet": parquet(rows[:20], like)}

    def all(self):
        return {
            "open-r1/OpenR1-Math-220k": self.openr1(), "nvidia/OpenCodeReasoning": self.opencode(),
            "open-thoughts/OpenThoughts-114k": self.openthoughts(), "open-thoughts/OpenThoughts3-1.2M": self.openthoughts3(),
            "HuggingFaceTB/smoltalk2": self.smoltalk2(), "bespokelabs/Bespoke-Stratos-17k": self.stratos(),
            "NovaSky-AI/Sky-T1_data_17k": self.sky(), "allenai/tulu-3-sft-mixture": self.tulu(), **self.plain(),
            "openbmb/UltraData-SFT-2605": self.ultradata_sft(), "codeparrot/apps": self.apps(), "BAAI/TACO": self.taco(),
            "deepmind/code_contests": self.contests(), "open-r1/codeforces": self.codeforces(),
        }


# --- tokenizers ---------------------------------------------------------------------------------------

def byte_letters():
    """The letter that stands for each byte in the vocabulary of a byte-level tokenizer."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {b: chr(b) for b in kept}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(extra)
            extra += 1
    return letters


def split_token(ranks, token, rank):
    """The two tokens that `token` was merged from: its bytes, merged as far as lower ranks go."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1)]
        best, i = min(pairs)
        if best >= rank:
            return None
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def qwen35_tokenizer(shared):
    """A tokenizer.json of the ranks of Qwen3.5, in the form of that of Qwen3."""
    folder = shared / "data/tokenizers"
    made = json.loads((folder / "qwen3.tokenizer.json").read_text())
    ranks = {}
    for line in (folder / "qwen3_6.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    letters = byte_letters()
    write = lambda token: "".join(letters[b] for b in token)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        pair = split_token(ranks, token, rank) if len(token) > 1 else None
        if pair:
            merges.append([write(pair[0]), write(pair[1])])
    made["model"]["vocab"] = {write(token): rank for token, rank in ranks.items()}
    made["model"]["merges"] = merges
    for number, added in enumerate(made["added_tokens"]):
        added["id"] = len(ranks) + number
    return json.dumps(made, ensure_ascii=False).encode()


def model_repos(shared):
    bytes_tokenizer = (ROOT / "tests/fixtures/bytes.tokenizer.json").read_bytes()
    has_ranks = (shared / "data/tokenizers/qwen3_6.tiktoken").exists()
    return {"Qwen/Qwen3.5-4B": {"tokenizer.json": qwen35_tokenizer(shared) if has_ranks else bytes_tokenizer},
            "openbmb/MiniCPM5-1B": {"tokenizer.json": bytes_tokenizer}}


# --- git ----------------------------------------------------------------------------------------------

def git(folder, *args, text=True):
    fixed = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
             "GIT_CONFIG_GLOBAL": "/dev/null"}
    who = ["-c", "user.name=fixtures", "-c", "user.email=fixtures@example.invalid"]
    done = subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, env={**os.environ, **fixed})
    return done.stdout.decode().strip() if text else done.stdout


def pointer(folder, data):
    """Puts a file into the store of large files, as the Hub does, and gives the text that points to it."""
    name = hashlib.sha256(data).hexdigest()
    place = folder / ".git/lfs/objects" / name[:2] / name[2:4] / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {len(data)}\n".encode()


def commit(folder, files, pinned):
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    files = {"README.md": b"---\nlicense: other\n---\n# Fixtures\n", **files}
    for path, data in files.items():
        large = path.endswith((".parquet", ".arrow", ".jsonl", ".json")) and len(data) > 10_000
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pointer(folder, data) if large else data)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Fixtures")
    for name in pinned:
        alias(folder, git(folder, "rev-parse", "HEAD"), name)


def alias(folder, real, name):
    """Stores the commit a second time under the name that a recipe pins. Git looks objects up by name and
    does not compare it with the content, so the repository answers for the commit of the real one."""
    stored = folder / ".git/objects" / real[:2] / real[2:]
    place = folder / ".git/objects" / name[:2] / name[2:]
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(stored, place)


def pins():
    """Full commits that cards, recipes and benchmark definitions name, by repository."""
    import tomllib

    found = {}
    for pattern in ("pipeline/corpora/*.toml", "blocklists/benchmarks/*.toml"):
        for path in ROOT.glob(pattern):
            card = tomllib.loads(path.read_text())
            repo, revision = card.get("id") if "corpora" in pattern else card.get("repo"), card.get("revision")
            if repo and revision and len(revision) == 40:
                found.setdefault(repo, set()).add(revision)
    return found


def lay_out(folder, files):
    """The files as they are, for reading without a server."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def make(out, shared, plain):
    mirrors = out / ("plain" if plain else "mirrors")
    if mirrors.exists():
        shutil.rmtree(mirrors)
    rng = random.Random(SEED)
    items = Benchmarks(shared, rng)
    leaked = [r["question"] for r in items.gsm8k()[:40]] + [r["problem"] for r in items.math500()[:40]]
    leaked += [r["Question"] for r in items.gpqa()] + [r["question"] for r in items.mmlu_pro()[:40]]
    leaked = [text for text in leaked if len(text.split()) > 20]
    datasets = Corpora(shared, rng, leaked).all()
    for repo, files in benchmark_repos(items).items():
        datasets[repo] = {**files, **Corpora(shared, rng, leaked).fixture(repo)} if repo == "openai/gsm8k" else files
    pinned, count = pins(), 0
    for kind, repos in (("datasets", datasets), ("models", model_repos(shared))):
        for repo, files in repos.items():
            if plain:
                lay_out(mirrors / kind / repo, files)
            else:
                commit(mirrors / kind / repo, files, pinned.get(repo, ()))
            count += 1
            print(f"{kind:<9} {repo:<42} {len(files):>3} files {sum(map(len, files.values())):>10} bytes")
    print(f"{count} repositories in {mirrors}")


# --- server -------------------------------------------------------------------------------------------

CONFIG = """[basic]
host = "127.0.0.1"
port = {port}
repos-path = "{out}/olah-cache-{port}"
hf-scheme = "http"
hf-netloc = "127.0.0.1:{upstream}"
hf-lfs-netloc = "127.0.0.1:{upstream}"
mirror-scheme = "http"
mirror-netloc = "127.0.0.1:{port}"
mirror-lfs-netloc = "127.0.0.1:{port}"
mirrors-path = [{mirrors}]
[accessibility]
offline = {offline}
"""


def serve(out, port):
    """Runs two olah servers: one that reads the repositories, and before it, at `port`, one that caches what
    it gives and answers ranges, which the first does not."""
    origin = subprocess.Popen([sys.executable, __file__, "origin", str(out), "--port", str(port + 1)])
    try:
        run_olah(out, port, upstream=port + 1, mirrors="", offline="false")
    finally:
        origin.terminate()


def serve_origin(out, port):
    """The server that reads the repositories, with the one route that its offline mode lacks: what is `main`?"""
    from fastapi import Request
    from olah import server
    from olah.server_api_routes import meta_proxy_common

    def route(kind):
        async def latest(org: str, repo: str, request: Request):
            return await meta_proxy_common(request.app, kind, org, repo, "main", request.method.lower(), None)
        return latest

    for kind in ("datasets", "models"):
        server.app.add_api_route(f"/api/{kind}/{{org}}/{{repo}}", route(kind), methods=["GET", "HEAD"])
        server.app.router.routes.insert(0, server.app.router.routes.pop())
    run_olah(out, port, upstream=9, mirrors=f'"{out}/mirrors"', offline="true")


def run_olah(out, port, **settings):
    from olah import server

    config = out / f"olah-{port}.toml"
    config.write_text(CONFIG.format(port=port, out=out, **settings))
    sys.argv = ["olah", "-c", str(config)]
    server.main()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("make")
    command.add_argument("out", type=pathlib.Path)
    command.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    command.add_argument("--plain", action="store_true", help="folders of files in OUT/plain in place of git repositories")
    for name in ("serve", "origin"):
        command = commands.add_parser(name)
        command.add_argument("out", type=pathlib.Path)
        command.add_argument("--port", type=int, default=8090)
    args = parser.parse_args()
    if args.command == "make":
        make(args.out.resolve(), args.shared.resolve(), args.plain)
    elif args.command == "serve":
        serve(args.out.resolve(), args.port)
    else:
        serve_origin(args.out.resolve(), args.port)


if __name__ == "__main__":
    main()
