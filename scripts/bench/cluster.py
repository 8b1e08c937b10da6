#!/usr/bin/env python3
"""One recipe by every way of running it, on this machine: the same bytes, and what each costs.

    cluster.py RECIPE FOLDER [--potable BIN] [--ray-python PY] [--s3 moto_server] [--only WAY,…]

Ways: `prep` in one process; the steps by hand; Ray with 1, 2 and 4 nodes, and with one killed in the middle
(scripts/faults/ray_nodes.py); Slurm with two slurmd, and with one killed (scripts/faults/slurm_cluster.sh);
the work folder on an S3 server on loopback. Prints wall and CPU seconds of each beside the first, and
whether manifest digest and shards are the same. CPU is counted by a control group, so daemons count too;
without the right to make one the column is empty. A way whose engine is missing is left out, and said.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS / "faults"))
import storage  # noqa: E402
from steps import Failure, Setting, contents  # noqa: E402


def main():
    args = arguments()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    ways = Ways(args, folder)
    first = None
    print(f"{'way':28} {'wall s':>7} {'CPU s':>7} {'wall':>6} {'CPU':>6}  result", flush=True)
    for name, way in ways.all():
        if args.only and name not in args.only.split(","):
            continue
        out = folder / "out"
        for old in (out, folder / "work"):
            shutil.rmtree(old, ignore_errors=True)
        with Group() as group:
            began = time.monotonic()
            try:
                note = way(group, out)
            except Missing as missing:
                print(f"{name:28} left out: {missing}", flush=True)
                continue
            wall = time.monotonic() - began
        result = contents(out)
        spent = group.seconds
        if first is None:
            first = (wall, spent, result)
        same = "same bytes" if result == first[2] else "DIFFERENT"
        digest = next(value for key, value in result.items() if key.endswith("manifest.json"))
        ratio = f"{spent / first[1]:6.2f}" if spent else "     -"
        print(f"{name:28} {wall:7.1f} {spent or 0:7.1f} {wall / first[0]:6.2f} {ratio}  {digest[7:19]} {same}"
              f"{'; ' + note if note else ''}", flush=True)
    print("load average at the end: {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("folder")
    parser.add_argument("--potable", default=str(SCRIPTS.parent / "target/release/potable"))
    parser.add_argument("--ray-python", default=sys.executable)
    parser.add_argument("--s3", default="moto_server")
    parser.add_argument("--only", help="names of ways, with commas")
    parser.add_argument("--kill-after", type=float, default=4.0, help="seconds into map at which a node is killed")
    return parser.parse_args()


class Missing(Exception):
    """An engine that is not here."""


class Group:
    """A control group of its own for what one way starts, daemons and all."""

    made = 0

    def __init__(self):
        self.place, self.seconds = None, None
        Group.made += 1
        for top in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"):
            place = pathlib.Path(top) / f"potable-bench-{os.getpid()}-{Group.made}"
            try:
                place.mkdir()
            except OSError:
                continue
            if (place / "cpuacct.usage").exists() or (place / "cpu.stat").exists():
                self.place = place
                break
            place.rmdir()

    def enter(self):
        """In a new process before it runs: joins the group."""
        if self.place:
            (self.place / "cgroup.procs").write_text(str(os.getpid()))

    def run(self, command, **options):
        log = options.pop("log", None)
        ran = subprocess.run([str(part) for part in command], preexec_fn=self.enter, stdin=subprocess.DEVNULL,
                             stdout=log or subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        if ran.returncode != 0:
            raise Failure(f"{command[:3]}: exit status {ran.returncode}\n{(ran.stdout or '')[-3000:]}")
        return ran.stdout

    def used(self):
        if self.place is None:
            return None
        if (self.place / "cpuacct.usage").exists():
            return int((self.place / "cpuacct.usage").read_text()) / 1e9
        stat = dict(line.split() for line in (self.place / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.seconds = self.used()
        if self.place:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    self.place.rmdir()
                    return
                time.sleep(0.1)


class Ways:
    """Each way takes a group and the output folder, and runs the recipe."""

    def __init__(self, args, folder):
        self.args, self.folder, self.work = args, folder, folder / "work"
        self.setting = Setting(args.potable, folder, args.recipe)
        self.setting.cut = []
        self.potable = [args.potable]

    def all(self):
        yield "prep 2 threads", lambda group, out: self.prep(group, out, 2)
        yield "prep 1 thread", lambda group, out: self.prep(group, out, 1)
        yield "steps 2 threads", lambda group, out: self.steps(group, out, str(self.work), {})
        for nodes in (1, 2, 4):
            yield f"ray {nodes} nodes", lambda group, out, n=nodes: self.ray(group, out, n, False)
        for nodes in (2, 4):
            yield f"ray {nodes} nodes 1 killed", lambda group, out, n=nodes: self.ray(group, out, n, True)
        yield "slurm 2 nodes", lambda group, out: self.slurm(group, out, False)
        yield "slurm 2 nodes 1 killed", lambda group, out: self.slurm(group, out, True)
        yield "steps s3", self.s3

    def prep(self, group, out, threads):
        group.run([*self.potable, "prep", self.args.recipe, "--out", out, "--threads", threads, "--no-progress"])

    def steps(self, group, out, work, environment):
        options = {"env": {**os.environ, **environment}}
        group.run([*self.potable, "plan", self.args.recipe, "--work", work, "--out", out], **options)
        for step in ("map", "select", "reduce", "seal"):
            group.run([*self.potable, step, "--work", work, "--threads", 2, "--no-progress"], **options)

    def ray(self, group, out, nodes, kill):
        python = self.args.ray_python
        if subprocess.run([python, "-c", "import ray"], capture_output=True).returncode != 0:
            raise Missing(f"`{python}` has no ray")
        command = [python, SCRIPTS / "faults/ray_nodes.py", nodes, self.args.recipe, "--work", self.work]
        command += ["--kill-after", self.args.kill_after] if kill else []
        text = group.run([*command, "--", "--out", out, "--potable", self.args.potable, "--memory", "2G",
                          "--json", self.folder / "ray.json"])
        if kill and "node killed" not in text:
            raise Failure(f"no node was killed:\n{text[-2000:]}")
        inside = [line for line in text.splitlines() if line.startswith("done in")]
        return f"ray_prep.py {inside[-1]}" if inside else ""

    def slurm(self, group, out, kill):
        if not shutil.which("slurmctld") or not shutil.which("munged"):
            raise Missing("slurmctld, slurmd or munged")
        cluster, place = SCRIPTS / "faults/slurm_cluster.sh", self.folder / "slurm"
        shutil.rmtree(place, ignore_errors=True)
        environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
        # The daemons write to their own logs; a pipe would stay open as long as they run.
        group.run(["bash", cluster, "start", place, 2], log=subprocess.DEVNULL)
        began = time.monotonic()
        try:
            command = ["bash", SCRIPTS / "slurm_prep.sh", self.args.recipe, "--work", self.work, "--out", out,
                       "--potable", self.args.potable, "--logs", place / "logs", "--units-per-task", 4,
                       "--partitions-per-task", 2, "--mem", "2G", "--wait"]
            driver = subprocess.Popen([str(part) for part in command], env=environment, preexec_fn=group.enter,
                                      stderr=subprocess.PIPE, text=True)
            if kill:
                while driver.poll() is None and not list((place / "logs").glob("map-*.log")):
                    time.sleep(0.1)
                time.sleep(self.args.kill_after)
                group.run(["bash", cluster, "kill-node", place, 1])
            _, text = driver.communicate()
            if driver.returncode != 0:
                raise Failure(f"slurm_prep.sh: exit status {driver.returncode}\n{text[-3000:]}")
            return f"slurm_prep.sh took {time.monotonic() - began:.1f} s"
        finally:
            subprocess.run(["bash", str(cluster), "stop", str(place)], capture_output=True)
            time.sleep(2)

    def s3(self, group, out):
        if not shutil.which(self.args.s3):
            raise Missing(f"`{self.args.s3}`")
        server = storage.Server(self.args.s3)
        try:
            self.steps(group, out, "s3://potable/work", {"AWS_ENDPOINT_URL": server.url, **storage.CREDENTIALS})
            times = os.times()
        finally:
            server.close()
        after = os.times()
        spent = after.children_user + after.children_system - times.children_user - times.children_system
        return f"the S3 server itself took {spent:.0f} CPU s"


if __name__ == "__main__":
    sys.exit(main())
