"""Runs the steps of a recipe one process at a time, as a scheduler would, from what `status` says."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess


class Failure(Exception):
    """Something that a fault may not do happened."""


class Setting:
    """What all scenarios share: binary, corpus, where the runs go, what the plain run gave."""

    def __init__(self, potable, folder, recipe, unit_bytes=400_000):
        self.potable, self.folder, self.recipe = str(potable), pathlib.Path(folder), recipe
        self.cut = ["--unit-bytes", str(unit_bytes), "--chunk-bytes", str(unit_bytes // 3)]
        self.plain = None

    def plain_run(self):
        """The undisturbed `prep` that every other run is compared with."""
        out = self.folder / f"plain-{pathlib.Path(self.recipe).stem}"
        shutil.rmtree(out, ignore_errors=True)
        ran = subprocess.run([self.potable, "prep", self.recipe, "--out", str(out), "--threads", "2", "--no-progress"],
                             capture_output=True, text=True)
        if ran.returncode != 0:
            raise Failure(f"the plain run failed:\n{ran.stderr}")
        self.plain = contents(out)

    def new(self, name, work=None, environment=None):
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return Steps(self, work or str(place / "work"), place / "out", environment or {})


class Steps:
    """One work folder and the commands on it."""

    def __init__(self, setting, work, out, environment):
        self.setting, self.work, self.out = setting, work, out
        self.environment = {**os.environ, **environment}
        self.out_uri = str(out)

    def command(self, step, item=None):
        """The command line of a step; `item` is (phase, start, end)."""
        if step == "prep":
            return [self.setting.potable, "prep", self.setting.recipe, "--out", self.out_uri, "--no-progress",
                    "--threads", "2", *self.setting.cut]
        command = [self.setting.potable, step]
        if step == "plan":
            return [*command, self.setting.recipe, "--work", self.work, "--out", self.out_uri, *self.setting.cut]
        command += ["--work", self.work, "--threads", "1", "--no-progress"]
        phase, start, end = item
        command += ["--phase", phase] if phase is not None else []
        option = {"map": "--unit", "reduce": "--partition"}.get(step)
        return command + ([option, f"{start}..{end}"] if option else [])

    def run(self, step, item=None, before=()):
        return subprocess.run([*before, *self.command(step, item)], env=self.environment, capture_output=True, text=True)

    def start(self, step, item=None, before=()):
        return subprocess.Popen([*before, *self.command(step, item)], env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def status(self):
        ran = subprocess.run([self.setting.potable, "status", "--work", self.work, "--format", "json"],
                             env=self.environment, capture_output=True, text=True)
        if ran.returncode != 0:
            raise Failure(f"status: exit status {ran.returncode}\n{ran.stderr}")
        return json.loads(ran.stdout)

    def next(self):
        """What is to be done now: a step and the items that it is missing."""
        status = self.status()
        phases = status["phases"]
        units = [(p["phase"], start, end) for p in phases for start, end in p["missing_units"]]
        if units:
            return "map", units
        for phase in phases:
            if not phase["selected"]:
                return "select", [(phase["phase"], 0, 1)]
        partitions = [(p["phase"], start, end) for p in phases for start, end in p["missing_partitions"]]
        if partitions:
            return "reduce", partitions
        # Without a phase: all of them, and the index over them.
        return ("done", []) if status["next"] == "done" else ("seal", [(None, 0, 1)])

    def finish(self, most=60):
        """Goes on until it is sealed; returns the steps that failed on the way, with their messages."""
        failed, last = [], None
        for _ in range(most):
            step, items = self.next()
            if step == "done":
                return failed
            if failed and (step, items) == last:
                # The command that starts a run puts its inputs there again.
                self.run("plan")
            last = (step, items)
            for item in items:
                ran = self.run(step, item)
                if ran.returncode not in ((0, 1) if step == "select" else (0,)):
                    failed.append((step, item, ran.stderr))
                    if len(failed) > 8:
                        raise Failure(f"{step} {item} does not get on:\n{ran.stderr}")
                    break
        raise Failure(f"not done after {most} rounds of status")

    def check(self):
        """The data set must be that of the plain run, byte by byte, and `manifest verify` clean."""
        found = contents(self.out)
        if found != self.setting.plain:
            names = [name for name in {*found, *self.setting.plain} if found.get(name) != self.setting.plain.get(name)]
            raise Failure(f"differs from the plain run: {', '.join(sorted(names)[:5])}")
        folders = [path.parent for path in sorted(self.out.glob("**/manifest.json")) if (path.parent / "shards").exists()]
        for folder in folders:
            ran = subprocess.run([self.setting.potable, "manifest", "verify", str(folder)], capture_output=True, text=True)
            if ran.returncode != 0:
                raise Failure(f"manifest verify: exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")


def contents(out):
    """Manifest digests, and a SHA-256 of every shard and list of dropped rows, by name."""
    out, found = pathlib.Path(out), {}
    for path in sorted(out.glob("**/*")):
        name = str(path.relative_to(out))
        if ".work" in path.parts or ".keys" in path.parts or not path.is_file():
            continue
        if path.name == "manifest.json":
            found[name] = json.loads(path.read_text()).get("manifest_digest", "index")
        elif any(part in ("shards", "validation", "dropped") for part in path.parts):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    if not any(name.endswith("manifest.json") for name in found):
        raise Failure(f"no manifest in {out}")
    return found
