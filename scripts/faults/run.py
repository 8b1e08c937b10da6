#!/usr/bin/env python3
"""The fault suite: whatever happens to a run, the same bytes come out, and nothing is lost.

    python3 scripts/faults/run.py [--kills 200] [--seed 7] [--potable BIN] [--only NAME,…]

A small made corpus goes through `potable prep` once, undisturbed. Then the steps `plan`, `map`, `select`,
`reduce` and `seal` are run one process at a time, as a scheduler would, and disturbed. After each
disturbance the manifest digest and every shard and list of dropped rows must be those of the plain run,
and `potable manifest verify` must be clean. What is done is decided by the seed. Prints a table; exit
status 1 if anything differs. What this machine does not allow or have is skipped, and said.
"""
import argparse
import contextlib
import importlib.util
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import damage
import kills
import proxy
import recipe
import storage
from gate import Gate, above, kill_tree
from steps import Failure, Setting

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    args = arguments()
    folder = pathlib.Path(args.folder or tempfile.mkdtemp(prefix="potable-faults-"))
    suite = Suite(args, folder)
    for name, scenario in suite.scenarios():
        if not args.only or name in args.only.split(","):
            suite.run(name, scenario)
    suite.close()
    if not args.folder:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{suite.good} passed, {suite.bad} failed, {suite.skipped} skipped")
    return 1 if suite.bad else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="random kills of steps, in all (default 200)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--potable", default=str(ROOT / "target/release/potable"))
    parser.add_argument("--folder", help="where to work (default: a new temporary folder)")
    parser.add_argument("--only", help="names of the scenarios, with commas")
    parser.add_argument("--s3", default="moto_server", help="binary of the S3 server (pip install 'moto[server]')")
    parser.add_argument("--ray-python", default=sys.executable, help="a Python that has `ray`")
    return parser.parse_args()


class Skip(Exception):
    """Not possible on this machine; the text says why."""


@contextlib.contextmanager
def launched(command, environment=None):
    """A launcher beside this; interrupted if it still runs at the end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        launcher = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        launcher.log = log
        try:
            yield launcher
        finally:
            if launcher.poll() is None:
                launcher.send_signal(signal.SIGINT)
            try:
                launcher.wait(timeout=60)
            except subprocess.TimeoutExpired:
                launcher.kill()


def finished(launcher, name):
    """The launcher's end, which must be a good one."""
    code = launcher.wait()
    if code != 0:
        launcher.log.seek(0)
        raise Failure(f"{name}: exit status {code}\n{launcher.log.read()[-3000:]}")


class Suite:
    """The scenarios and what became of them."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.good = self.bad = self.skipped = 0
        self.server = None
        recipe.write(folder / "corpus", ROOT / "tests/fixtures/bytes.tokenizer.json")
        self.one = Setting(args.potable, folder, str(folder / "corpus/one.toml"))
        self.phases = Setting(args.potable, folder, str(folder / "corpus/phases.toml"))
        for setting in (self.one, self.phases):
            setting.plain_run()
        self.calls = kills.strace_works()
        print(f"{'scenario':36} {'result':8} {'seconds':>7}  what was done", flush=True)

    def scenarios(self):
        kills_each = self.args.kills // 4
        yield "steps", lambda made: self.undisturbed(self.one)
        yield "steps-phases", lambda made: self.undisturbed(self.phases)
        yield "kill", lambda made: self.kill(self.one, made, self.args.kills - 2 * kills_each)
        yield "kill-phases", lambda made: self.kill(self.phases, made, kills_each)
        yield "kill-prep", lambda made: self.kill_prep(made, kills_each)
        yield "duplicates", lambda made: f"{damage.duplicated(self.one, made)} processes, 3 at once on each piece"
        yield "duplicates-phases", lambda made: f"{damage.duplicated(self.phases, made)} processes, 3 at once"
        for after in ("map", "select", "reduce"):
            for how in damage.HOW:
                yield f"damage-{after}-{how.replace(' ', '-')}", lambda made, a=after, h=how: self.harm(made, a, h)
        yield "damage-plan", self.harm_plan
        for step in ("plan", "map", "select", "reduce", "seal"):
            yield f"disk-full-{step}", lambda made, s=step: self.full(s)
        yield "clock", self.clock
        for kind in ("500", "503", "429", "closed", "truncated", "slow", "lost answer"):
            yield f"s3-{kind.replace(' ', '-')}", lambda made, k=kind: self.store((k,), 0.15)
        yield "s3-all", lambda made: self.store(proxy.KINDS, 0.3)
        yield "s3-dead", self.dead_store
        yield "s3-kill", lambda made: self.kill_on_store(made, max(1, self.args.kills // 10))
        yield "node-lost-ray", self.ray_node_lost
        yield "node-lost-slurm", self.slurm_node_lost

    def run(self, name, scenario):
        began = time.monotonic()
        try:
            text, result = scenario(random.Random(f"{self.args.seed} {name}")), "same"
            self.good += 1
        except Skip as skip:
            text, result = str(skip), "skipped"
            self.skipped += 1
        except Failure as failure:
            text, result = str(failure), "FAILED"
            self.bad += 1
        print(f"{name:36} {result:8} {time.monotonic() - began:7.1f}  {text}", flush=True)

    def undisturbed(self, setting):
        steps = setting.new("steps")
        if steps.run("plan").returncode != 0:
            raise Failure(steps.run("plan").stderr)
        failed = steps.finish()
        if failed:
            raise Failure(failed[0][2])
        steps.check()
        return f"{len(setting.plain)} files and manifests as those of prep"

    def kill(self, setting, made, wanted):
        runs, by_step = kills.steps_killed(setting, made, wanted, self.calls)
        return self.killed(runs, by_step)

    def kill_prep(self, made, wanted):
        return self.killed(*kills.prep_killed(self.one, made, wanted, self.calls))

    def killed(self, runs, by_step):
        each = ", ".join(f"{step} {count}" for step, count in sorted(by_step.items()))
        where = "" if self.calls else "; by the clock only: strace cannot stop processes here"
        return f"{sum(by_step.values())} kills in {runs} runs ({each}){where}"

    def harm(self, made, after, how):
        files = failed = 0
        for _ in range(4):
            more = damage.damaged(self.one, made, after, how)
            files, failed = files + more[0], failed + more[1]
        return f"{files} files in 4 runs; {failed} steps stopped at it, the others had no need of the file"

    def harm_plan(self, made):
        for how in damage.HOW[:3]:
            damage.plan_damaged(self.one, made, how)
        return "an error that names plan.json, nothing sealed"

    def full(self, step):
        if not damage.disks_allowed(self.folder):
            raise Skip("no tmpfs can be mounted here")
        # Without a page it is full at the first file, the others somewhere between the first and the last.
        rooms = (0, 1, 2, 4, 8, 16, 32)
        failed = sum(damage.full(self.one, step, pages) for pages in rooms)
        if failed == 0:
            raise Failure(f"{step} needed no room")
        return f"{failed} processes stopped for want of room with none to {rooms[-1]} pages left, then went on"

    def clock(self, made):
        if not shutil.which("faketime"):
            raise Skip("faketime is not installed")
        damage.skewed(self.one, made)
        return "each step and each file up to ten years off"

    def s3(self):
        if not shutil.which(self.args.s3):
            raise Skip(f"`{self.args.s3}` is not found")
        self.server = self.server or storage.Server(self.args.s3)
        return self.server

    def store(self, kinds, share):
        requests, faults = storage.faulty(self.one, self.s3(), self.args.seed, share, kinds)
        return f"{faults} faults in {requests} requests"

    def dead_store(self, _):
        return f"an error after {storage.dead(self.one, self.s3()):.0f} s"

    def kill_on_store(self, made, wanted):
        return self.killed(*storage.killed(self.one, self.s3(), made, wanted, self.calls))

    def ray_node_lost(self, _):
        python = self.args.ray_python
        if python == sys.executable and importlib.util.find_spec("ray") is None or subprocess.run(
                [python, "-c", "import ray"], capture_output=True).returncode != 0:
            raise Skip(f"`{python}` has no ray")
        steps = self.planned("node-lost")
        script = pathlib.Path(__file__).with_name("ray_nodes.py")
        with Gate(steps, self.folder / "node-lost" / "gate") as gate:
            with launched([python, str(script), "2", self.one.recipe, "--work", steps.work, "--",
                           "--out", steps.out_uri, "--potable", gate.binary, "--units-per-task", "1"]) as launcher:
                held = gate.wait(launcher)
                kill_tree(above(held, "raylet"))
                middle = gate.lost(held)
                finished(launcher, "ray_prep.py")
        steps.check()
        return f"one of two Ray nodes killed during map, with {middle}"

    def slurm_node_lost(self, _):
        if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "munged", "sbatch")):
            raise Skip("slurmctld, slurmd, munge or slurm-client is not installed")
        steps = self.planned("node-lost-slurm")
        cluster = pathlib.Path(__file__).with_name("slurm_cluster.sh")
        # In a folder of its own: slurm.conf cannot name all that --folder may be.
        place = pathlib.Path(tempfile.mkdtemp(prefix="potable-slurm-"))
        environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
        try:
            # The daemons keep what they inherit, so that a pipe would stay open as long as they live.
            with open(place / "start.log", "w+", encoding="utf-8") as log:
                if subprocess.run(["bash", str(cluster), "start", str(place), "2"], stdout=log, stderr=log).returncode != 0:
                    log.seek(0)
                    raise Failure(f"slurm_cluster.sh: {log.read()[-2000:]}")
            with Gate(steps, self.folder / "node-lost-slurm" / "gate") as gate:
                with launched(["bash", str(ROOT / "scripts/slurm_prep.sh"), self.one.recipe, "--work", steps.work,
                               "--out", steps.out_uri, "--potable", gate.binary, "--logs", str(place / "logs"),
                               "--wait"], environment) as launcher:
                    held = gate.wait(launcher, "node1")
                    subprocess.run(["bash", str(cluster), "kill-node", str(place), "1"], check=True)
                    middle = gate.lost(held)
                    finished(launcher, "slurm_prep.sh")
        finally:
            subprocess.run(["bash", str(cluster), "stop", str(place)], capture_output=True)
            shutil.rmtree(place, ignore_errors=True)
        steps.check()
        return f"one of two slurmd and its jobs killed during map, with {middle}"

    def planned(self, name):
        """A fresh work folder with a plan that cuts the corpus into many units."""
        steps = self.one.new(name)
        if (ran := steps.run("plan")).returncode != 0:
            raise Failure(ran.stderr)
        return steps

    def close(self):
        if self.server:
            self.server.close()


if __name__ == "__main__":
    sys.exit(main())
