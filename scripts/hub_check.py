#!/usr/bin/env python3
"""Runs potable against a real Hub server on the loopback, and shares a cache with Python's huggingface_hub.

    python -m venv VENV; VENV/bin/pip install olah huggingface_hub pyarrow
    VENV/bin/python scripts/hub_check.py POTABLE DATA_DIR WORK_DIR

DATA_DIR holds olah.toml, olah-b.toml, olah_origin.py and mkrepo.py. olah serves a small git repository; a
second olah in front of it answers ranges. Then: pin, list, download, kill and resume, stream, a wrong file;
what potable downloaded is found by huggingface_hub offline, and what huggingface_hub downloaded is used by
potable offline; the same over TLS. Exits 1 if anything is not as it should be.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request

potable, data, work = (pathlib.Path(arg).resolve() for arg in sys.argv[1:4])
RECIPE = """name = "hub_check"
[[source]]
name = "tiny"
repo = "org/tiny"
path = "data/train-*.parquet"
[source.mapping]
shape = "columns"
prompt = "question"
response = "answer"
[decontaminate]
none = true
"""
# A column that no compressor makes smaller and that nobody reads, so that a download takes long enough to
# be killed and a stream has something to leave out.
ROWS, UNUSED = 2000, 12_000
REPO = "datasets--org--tiny"


def check(what, holds, detail=""):
    print(("ok    " if holds else "WRONG ") + what, detail, flush=True)
    if not holds:
        sys.exit(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(config, code, ports):
    text = (data / config).read_text()
    for port, other in ports.items():
        text = text.replace(port, str(other))
    (work / config).write_text(text)
    log = (work / f"{config}.log").open("w")
    argv = [sys.executable, "-c", code, "-c", config]
    return subprocess.Popen(argv, cwd=work, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(work)})


def wait_for(url):
    for _ in range(200):
        try:
            return json.load(urllib.request.urlopen(url))
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{url} does not answer")


def environment(home, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    return kept | {"HF_HOME": str(work / home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"} | more


def run(*args, home="home", code=0, **more):
    done = subprocess.run([potable, *args], cwd=work, env=environment(home, **more), capture_output=True, text=True)
    if done.returncode != code:
        print(done.stdout, done.stderr, sep="\n")
        check(f"exit status of {args}", False, done.returncode)
    return done.stdout + done.stderr


def log(out, whole=True):
    """Transfers of a run: of whole files, or of the ranges that the plan reads of each footer."""
    lines = [json.loads(line) for line in (work / out / "downloads.jsonl").read_text().splitlines()]
    return [line for line in lines if line["path"].endswith(".parquet") and ("sha256" in line) == whole]


def digest(out):
    return json.loads((work / out / "manifest.json").read_text())["manifest_digest"]


def python(home, body, **more):
    done = subprocess.run([sys.executable, "-c", body], cwd=work, env=environment(home, **more), capture_output=True, text=True)
    check("huggingface_hub runs", done.returncode == 0, done.stderr[-500:])
    return json.loads(done.stdout)


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def scenario():
    wait_for(f"{endpoint}/api/datasets/org/tiny/revision/main")
    run("lock", "recipe.toml")
    lock = tomllib.loads((work / "recipe.lock").read_text())
    (pin,) = [pin for pin in lock["pin"] if pin["repo"] == "org/tiny"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, capture_output=True, text=True).stdout.strip()
    check("pin: `main` is the repository's commit", pin["commit"] == head, head)
    pointers = {path.name: path.read_text() for path in (repo / "data").iterdir()}
    for file in pin["file"]:
        pointer = pointers[pathlib.Path(file["path"]).name]
        right = f"sha256:{file['sha256']}" in pointer and f"size {file['size']}\n" in pointer
        check(f"list: {file['path']}", right, f"{file['size']} bytes, sha256 {file['sha256']}")
    size = {file["path"]: file["size"] for file in pin["file"]}

    run("prep", "recipe.toml", "--locked", "--out", "plain", "--no-progress")
    lines = log("plain")
    check("download: every file once, whole", {l["path"]: l["bytes"] for l in lines} == size, sum(size.values()))
    check("download: sha256 in the log", {l["sha256"] for l in lines} == {f["sha256"] for f in pin["file"]})

    left = killed()
    run("prep", "recipe.toml", "--locked", "--out", "resumed", "--no-progress", home="killed")
    again = sum(line["bytes"] for line in log("resumed"))
    check("resume: nothing is transferred twice", 0 < left and left + again == sum(size.values()),
          f"{left} bytes lay there after the kill, {again} came then, {sum(size.values())} in all")
    check("resume: same data", digest("resumed") == digest("plain"), digest("plain"))

    run("prep", "recipe.toml", "--locked", "--stream", "--out", "streamed", "--no-progress", home="streamed")
    read = sum(line["bytes"] for line in log("streamed", whole=False))
    copies = list((work / "streamed" / "hub").rglob("*.parquet"))
    check("stream: no copy, and only some of the bytes", not copies and 0 < read < sum(size.values()), read)
    manifest = (work / "streamed" / "manifest.json").read_text()
    check("stream: `verified` = `ranges`", re.search(r'"verified":\s*"ranges"', manifest) is not None)
    run("prep", "recipe.toml", "--stream", "--require-verified", "--out", "refused", "--no-progress", home="streamed", code=2)
    check("stream: --require-verified refuses ranges", True)

    shared(pin)


def killed():
    """Kills a run in mid-download; the bytes that are left."""
    blobs = work / "killed" / "hub" / REPO / "blobs"
    argv = [potable, "prep", "recipe.toml", "--locked", "--out", "resumed", "--no-progress"]
    process = subprocess.Popen(argv, cwd=work, env=environment("killed"), stderr=subprocess.DEVNULL)
    there = lambda: sum(path.stat().st_size for path in blobs.glob("*.incomplete"))
    while process.poll() is None and there() < 1 << 20:
        time.sleep(0.001)
    process.kill()
    process.wait()
    check("killed in mid-download", there() >= 1 << 20)
    return sum(path.stat().st_size for path in blobs.iterdir())


def shared(pin):
    names = [file["path"] for file in pin["file"]]
    found = python("home", f"""
import json
from huggingface_hub import hf_hub_download, scan_cache_dir
get = lambda name, revision: hf_hub_download("org/tiny", name, repo_type="dataset", revision=revision, local_files_only=True)
paths = {{name: get(name, {pin['commit']!r}) for name in {names!r}}}
assert all(get(name, "main") == path for name, path in paths.items())
(repo,) = [repo for repo in scan_cache_dir().repos if repo.repo_id == "org/tiny"]
print(json.dumps({{"paths": paths, "files": repo.nb_files, "warnings": len(scan_cache_dir().warnings)}}))
""", HF_HUB_OFFLINE="1")
    right = all(sha256(found["paths"][file["path"]]) == file["sha256"] for file in pin["file"])
    check("huggingface_hub finds what potable downloaded", right and not found["warnings"],
          f"{found['files']} files, by commit and as `main`")

    got = python("python", f"""
import json, huggingface_hub
from huggingface_hub import hf_hub_download
paths = [hf_hub_download("org/tiny", name, repo_type="dataset", revision={pin['commit']!r}) for name in {names!r}]
print(json.dumps([huggingface_hub.__version__, *paths]))
""")
    run("prep", "recipe.toml", "--locked", "--out", "from_python", "--no-progress", home="python", HF_HUB_OFFLINE="1")
    lines = log("from_python")
    check("potable offline uses what huggingface_hub downloaded",
          len(lines) == len(names) and all(l["from_cache"] and l["bytes"] == 0 for l in lines), f"huggingface_hub {got[0]}")
    check("same data", digest("from_python") == digest("plain"))
    blob = pathlib.Path(got[1]).resolve()
    content = bytearray(blob.read_bytes())
    content[-100] ^= 1
    blob.write_bytes(content)
    words = run("prep", "recipe.toml", "--locked", "--out", "wrong", "--no-progress", home="python", HF_HUB_OFFLINE="1", code=2)
    check("one wrong bit in the cache is an error offline", "sha256" in words, words.splitlines()[0])
    run("prep", "recipe.toml", "--locked", "--out", "mended", "--no-progress", home="python")
    check("and is fetched again online", [l["from_cache"] for l in log("mended")].count(False) == 1)


def encrypted():
    """The same server behind TLS, with a certificate that only SSL_CERT_FILE knows."""
    if not shutil.which("openssl"):
        print("left out: no openssl for a certificate")
        return
    for name, request, signed in [("ca", "-x509 -days 2 -subj /CN=ca", ""), ("leaf", "-subj /CN=localhost", "ca")]:
        subprocess.run(f"openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem {request}".split(),
                       cwd=work, check=True, stderr=subprocess.DEVNULL)
        if signed:
            (work / "san").write_text("subjectAltName=DNS:localhost")
            sign = f"openssl x509 -req -in {name}.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out {name}.crt"
            subprocess.run(sign.split(), cwd=work, check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(work / "leaf.crt", work / "leaf.key")
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=tunnel, args=(listener, context), daemon=True).start()
    more = {"HF_ENDPOINT": f"https://localhost:{listener.getsockname()[1]}"}
    out = ["prep", "recipe.toml", "--locked", "--no-progress", "--out"]
    words = run(*out, "untrusted", home="tls", code=2, **more)
    check("https: a certificate that nobody knows is refused", "certificate" in words.lower(), words.splitlines()[0])
    run(*out, "tls", home="tls", SSL_CERT_FILE=str(work / "ca.pem"), **more)
    check("https: with SSL_CERT_FILE it is trusted", digest("tls") == digest("plain"))
    check("https: the log has the address", all(l["url"].startswith("https://") for l in log("tls")))


def tunnel(listener, context):
    def pump(source, target):
        try:
            while chunk := source.recv(1 << 16):
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            target.close()

    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", ports["8091"]))
        try:
            client = context.wrap_socket(client, server_side=True)
        except OSError:
            continue
        for ends in [(client, server), (server, client)]:
            threading.Thread(target=pump, args=ends, daemon=True).start()


shutil.rmtree(work, ignore_errors=True)
(work / "mirrors" / "datasets" / "org").mkdir(parents=True)
for name in ["olah_origin.py", "mkrepo.py"]:
    shutil.copyfile(data / name, work / name)
(work / "recipe.toml").write_text(RECIPE)
noise = random.Random(7)
with (work / "train.jsonl").open("w") as out:
    for row in range(ROWS):
        unused = noise.randbytes(UNUSED // 2).hex()
        out.write(json.dumps({"question": f"What is {row}?", "answer": f"It is {row}.", "unused": unused}) + "\n")
repo = work / "mirrors" / "datasets" / "org" / "tiny"
subprocess.run([sys.executable, "mkrepo.py", repo], cwd=work, check=True)
ports = {"8090": free_port(), "8091": free_port()}
endpoint = f"http://127.0.0.1:{ports['8091']}"
servers = [serve("olah.toml", "import olah_origin", ports), serve("olah-b.toml", "from olah import server; server.main()", ports)]
try:
    scenario()
    encrypted()
finally:
    for server in servers:
        server.kill()
