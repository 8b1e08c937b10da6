#!/usr/bin/env python3
"""Runs a recipe on a Ray cluster: the same bytes as `potable prep`, from many machines.

    pip install ray
    ray_prep.py RECIPE --work s3://bucket/runs/sft --address auto

Ray places and repeats the work; `potable` does it, one process a task:

    plan (here) -> map (a task for some units) -> select (one task) -> reduce (a task for some
    partitions) -> seal (one task)

If a cap needs more rows than the first round of map gave, select says so, and map and select go
round again. What is there already is not done again: the same command goes on after any stop. A lost
node costs the tasks that it was running, which Ray gives to another node.

WORK (and OUT, default WORK/out) must be reached by every node under the same name: a shared folder,
s3://... or gs://.... Progress and messages go to stderr. Exit status as that of potable: 0 done;
1 done, but rows could not be read; 2 error; 130 interrupted.
"""
import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time

try:
    import ray
except ImportError:
    sys.exit("error: this Python has no `ray`\nhint: pip install ray")

# Lines of a failed command's stderr that are passed on.
TAIL = 30
# Tasks a slot that a step is cut into, unless --units-per-task or --partitions-per-task says otherwise.
TASKS_PER_SLOT = 8
# Seconds between two lines of progress where there is no terminal.
LINE_EVERY = 10.0

Task = collections.namedtuple("Task", "command phase start end failures")
Done = collections.namedtuple("Done", "code stderr cpu_seconds node")


class Stop(Exception):
    """The run cannot go on; the text says why."""


class Failed(Stop):
    """A task that failed for good."""


def main():
    args = arguments()
    began = time.monotonic()
    try:
        connect(args.address)
        code = Run(args).go()
        note(f"done in {time.monotonic() - began:.1f} s")
        return code
    except Stop as stop:
        note(f"error: {stop}")
        return 2
    except (ConnectionError, ray.exceptions.RayError) as error:
        note(f"error: Ray: {error}\nhint: is the cluster up, and is --address its address? finished work is kept")
        return 2
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from here")
        return 130
    finally:
        ray.shutdown()


def connect(address):
    """To a cluster, or to one of this machine alone, which then listens on loopback only."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    else:
        ray.init(address=address, **quiet)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="recipe file or name of a built-in recipe")
    parser.add_argument("--work", required=True, help="work folder that all nodes share, s3:// or gs://")
    parser.add_argument("--out", help="where the data set goes (default: WORK/out)")
    parser.add_argument("--address", default="auto", help="of the cluster; `local` starts one on this machine")
    parser.add_argument("--potable", default="potable", help="the binary, under the same name on all nodes")
    parser.add_argument("--ship", action="store_true", help="send this machine's binary to the nodes")
    parser.add_argument("--env", action="append", default=[], metavar="NAME",
                        help="pass this variable of the environment on to the tasks (repeatable)")
    parser.add_argument("--cpus-per-task", type=positive, default=1, help="cores and threads of a task")
    parser.add_argument("--memory", type=size, help="memory that a task reserves, such as 3G")
    parser.add_argument("--select-memory", type=size, help="the same for select and seal (default: --memory)")
    parser.add_argument("--units-per-task", type=positive, help="default: 8 tasks a slot of the cluster")
    parser.add_argument("--partitions-per-task", type=positive, help="the same for reduce")
    parser.add_argument("--retries", type=int, default=3, help="of a task whose node or process was lost")
    parser.add_argument("--scratch", help="folder for temporary files on the nodes")
    parser.add_argument("--limit", type=positive, help="first rows of each source only (a trial)")
    parser.add_argument("--locked", action="store_true", help="refuse a recipe that its lock does not cover")
    parser.add_argument("--json", metavar="FILE", help="write tasks, CPU seconds and times of each step here")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a positive number")
    return value


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        return int(float(number) * unit)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a size; write 3G or 800M") from None


def note(text):
    print(text, file=sys.stderr, flush=True)


def absolute(place):
    """A local folder as every node is to see it; URIs as they are."""
    return place if "://" in place else os.path.abspath(place)


def potable(command, environment, digest, data):
    """One potable process, on a node: exit status, end of its stderr, CPU seconds, node.

    A worker that dies takes its process with it. `data` is the binary, if the driver sends it along.
    """
    setpriv = shutil.which("setpriv")
    guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    node = ray.get_runtime_context().get_node_id()
    before = os.times()
    try:
        with shipped(digest, data) if data else contextlib.nullcontext(command[0]) as binary:
            ran = subprocess.run([*guard, binary, *command[1:]], env={**os.environ, **environment},
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        return 2, f"error: `{error.filename or tempfile.gettempdir()}`: {error.strerror}", 0.0, node
    after = os.times()
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    code = 128 - ran.returncode if ran.returncode < 0 else ran.returncode
    return code, "\n".join(lines[-TAIL:]), cpu(before, after), node


def cpu(before, after):
    """CPU seconds of child processes between two readings of os.times()."""
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return round(spent, 3)


@contextlib.contextmanager
def shipped(digest, data):
    """The binary that the driver sent, kept on this node under its digest.

    Others may write in the folder for temporary files too. So the binary lies in a folder that is ours alone,
    and what lies there is run only if it is what was sent.
    """
    folder = pathlib.Path(tempfile.gettempdir()) / f"potable-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not ours(folder):
        # Someone else has that name: a folder for this task alone.
        with tempfile.TemporaryDirectory(prefix="potable-") as other:
            yield written(pathlib.Path(other) / digest, data)
        return
    place = folder / digest
    yield str(place) if same(place, digest) else written(place, data)


def ours(folder):
    """Whether it is a folder, no link to one, where nobody but this user can write or look."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and state.st_mode & 0o077 == 0


def same(place, digest):
    """Whether there is a file of ours that nobody else may change, with these very bytes."""
    try:
        state = place.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o777 != 0o700:
            return False
        found = hashlib.sha256()
        with open(place, "rb") as file:
            while piece := file.read(1 << 20):
                found.update(piece)
    except OSError:
        return False
    return found.hexdigest() == digest


def written(place, data):
    """Writes the binary under its name at once, so that a task beside this one never sees half of it."""
    handle, name = tempfile.mkstemp(dir=place.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o700)
        os.rename(name, place)
    except BaseException:
        os.unlink(name)
        raise
    return str(place)


class Run:
    """The steps of one recipe, from what `status` says is missing."""

    def __init__(self, args):
        self.args = args
        self.work = absolute(args.work)
        self.report = {}
        self.environment = {name: os.environ[name] for name in args.env if name in os.environ}
        for name in args.env:
            if name not in os.environ:
                raise Stop(f"--env {name}: it is not set here")
        self.here = shutil.which(args.potable)
        if self.here is None:
            raise Stop(f"`{args.potable}` is not found\nhint: name the binary with --potable")
        # A relative name means nothing on a node.
        self.there = os.path.abspath(self.here) if os.sep in args.potable else args.potable
        self.shipped = ("", None)
        if args.ship:
            data = pathlib.Path(self.here).read_bytes()
            # A reference as an argument is fetched to the node once, before its first task.
            self.shipped = (hashlib.sha256(data).hexdigest(), ray.put(data))

    def go(self):
        self.plan()
        last, repairs = None, 0
        while True:
            status = self.status()
            step, ranges = next_step(status)
            if (step, ranges) == last:
                raise Stop(f"{step} ended well, but what it made is not in `{self.work}`\n"
                           "hint: WORK must be one place for all nodes: a shared folder, s3:// or gs://")
            last = (step, ranges)
            try:
                if step == "seal":
                    return self.seal()
                self.select(ranges[0][0]) if step == "select" else self.many(step, ranges)
            except Failed:
                # A damaged file is removed by the step that reads it, and then what made it is the next step.
                repairs += 1
                again = next_step(self.status())[0]
                if again == step or repairs > self.args.retries:
                    raise
                note(f"{step}: what it reads was damaged or gone, {again} makes it again")

    def plan(self):
        args = self.args
        command = ["plan", args.recipe, "--work", self.work]
        command += ["--out", absolute(args.out)] if args.out else []
        command += ["--limit", str(args.limit)] if args.limit else []
        command += ["--locked"] if args.locked else []
        began, before = time.monotonic(), os.times()
        ran = subprocess.run([self.here, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if ran.returncode != 0:
            raise Stop(f"potable plan ended with exit status {ran.returncode}, its message is above")
        self.count("plan", 1, cpu(before, os.times()), time.monotonic() - began)

    def status(self):
        ran = subprocess.run([self.here, "status", "--work", self.work, "--format", "json"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            return json.loads(ran.stdout)
        except ValueError:
            raise Stop(f"potable status ended with exit status {ran.returncode} and without an answer") from None

    def many(self, step, ranges):
        """Tasks over ranges of units or partitions, as many at once as the cluster has room for."""
        args = self.args
        slots = max(1, int(ray.cluster_resources().get("CPU", 1)) // args.cpus_per_task)
        total = sum(end - start for _, start, end in ranges)
        chosen = args.units_per_task if step == "map" else args.partitions_per_task
        each = chosen or max(1, -(-total // (slots * TASKS_PER_SLOT)))
        option = "--unit" if step == "map" else "--partition"
        waiting = collections.deque()
        for phase, start, end in ranges:
            for at in range(start, end, each):
                upto = min(at + each, end)
                waiting.append(Task([step, option, f"{at}..{upto}"], phase, at, upto, 0))
        self.pool(step, waiting, 4 * slots, total)

    def pool(self, step, waiting, most, total):
        running, board = {}, Board(step, total)
        began, spent, tasks = time.monotonic(), 0.0, 0
        while waiting or running:
            while waiting and len(running) < most:
                task = waiting.popleft()
                running[self.submit(task, self.args.memory)] = task
            ready, _ = ray.wait(list(running), timeout=1.0)
            for future in ready:
                task = running.pop(future)
                done = self.result(future)
                spent, tasks = spent + done.cpu_seconds, tasks + 1
                if done.code == 0:
                    board.done(task.end - task.start)
                else:
                    waiting.append(self.again(task, done, running))
            board.show(len(running))
        board.end()
        self.count(step, tasks, spent, time.monotonic() - began)

    def again(self, task, done, running):
        """The same task for another try, if one is left: an error gets one, a lost process `--retries`."""
        tries = self.args.retries if done.code > 128 else min(1, self.args.retries)
        if task.failures >= tries:
            for future in running:
                ray.cancel(future, force=True)
            raise Failed(f"potable {' '.join(task.command)} ended with exit status {done.code}{where(done)} "
                         f"for the {task.failures + 1}. time:\n{done.stderr}\n"
                         "hint: finished work is kept; the same command goes on")
        note(f"{' '.join(task.command)}: exit status {done.code}{where(done)}, once more; {reason(done)}")
        return task._replace(failures=task.failures + 1)

    def submit(self, task, memory):
        command = [self.there, *task.command, "--work", self.work, "--no-progress",
                   "--threads", str(self.args.cpus_per_task)]
        command += ["--phase", task.phase] if task.phase is not None else []
        command += ["--scratch", self.args.scratch] if self.args.scratch else []
        remote = ray.remote(potable).options(
            name=" ".join(task.command), num_cpus=self.args.cpus_per_task, memory=memory,
            max_retries=self.args.retries, scheduling_strategy="SPREAD")
        return remote.remote(command, self.environment, *self.shipped)

    def result(self, future):
        """What became of a task; Ray gives up on it after `--retries` lost nodes or workers."""
        try:
            return Done(*ray.get(future))
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError,
                ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError) as error:
            return Done(137, f"Ray: {error}", 0.0, "")
        except ray.exceptions.RayTaskError as error:
            # Not of potable, but of what stands around it on the node.
            return Done(2, f"error: {type(error.cause).__name__}: {error.cause}", 0.0, "")

    def single(self, step, phase, allowed):
        """A step that one task does."""
        memory = self.args.select_memory or self.args.memory
        task, began = Task([step], phase, 0, 1, 0), time.monotonic()
        while True:
            done = self.result(self.submit(task, memory))
            self.count(step, 1, done.cpu_seconds, time.monotonic() - began)
            if done.code in allowed:
                return done
            task, began = self.again(task, done, []), time.monotonic()

    def select(self, phase):
        done = self.single("select", phase, (0, 1))
        note(f"select   {'a cap needs more rows: another round of map' if done.code == 1 else 'done'}")

    def seal(self):
        """All phases, and the index over them; what is sealed already says its exit status once more."""
        done = self.single("seal", None, (0, 1))
        note(done.stderr)
        if self.args.json:
            pathlib.Path(self.args.json).write_text(json.dumps(self.report, indent=1) + "\n")
        return done.code

    def count(self, step, tasks, spent, wall):
        entry = self.report.setdefault(step, {"tasks": 0, "cpu_seconds": 0.0, "wall_seconds": 0.0})
        entry["tasks"] += tasks
        entry["cpu_seconds"] = round(entry["cpu_seconds"] + spent, 2)
        entry["wall_seconds"] = round(entry["wall_seconds"] + wall, 2)


def next_step(status):
    """What is to be done now: a step and its (phase, start, end) ranges.

    A later phase may leave out the rows of an earlier one, so phases are selected in order; their units
    and partitions do not wait for each other.
    """
    phases = status["phases"]
    missing = [(p["phase"], start, end) for p in phases for start, end in p["missing_units"]]
    if missing:
        return "map", missing
    for phase in phases:
        if not phase["selected"]:
            return "select", [(phase["phase"], 0, 1)]
    missing = [(p["phase"], start, end) for p in phases for start, end in p["missing_partitions"]]
    return ("reduce", missing) if missing else ("seal", [])


def where(done):
    """The node of a task, if it lived to tell."""
    return f" on node {done.node[:8]}" if done.node else ""


def reason(done):
    """The line of a task's stderr that says what was wrong."""
    lines = done.stderr.splitlines()
    return next((line for line in lines if line.startswith("error")), lines[0] if lines else "it said nothing")


class Board:
    """Progress of one step, on stderr."""

    def __init__(self, step, total):
        self.step, self.total, self.made = step, total, 0
        self.what = "units" if step == "map" else "partitions"
        self.began = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def done(self, count):
        self.made += count

    def show(self, running):
        now = time.monotonic()
        if now - self.shown < (0.5 if self.terminal else LINE_EVERY):
            return
        self.shown = now
        elapsed = now - self.began
        left = f", {elapsed / self.made * (self.total - self.made):.0f} s left" if self.made else ""
        nodes = sum(1 for node in ray.nodes() if node["Alive"])
        line = (f"{self.step:8} {self.made}/{self.total} {self.what}, {running} tasks given out, "
                f"{nodes} nodes, {elapsed:.0f} s{left}")
        print(f"\r\x1b[K{line}" if self.terminal else line, end="" if self.terminal else "\n",
              file=sys.stderr, flush=True)

    def end(self):
        clear = "\r\x1b[K" if self.terminal else ""
        note(f"{clear}{self.step:8} {self.made}/{self.total} {self.what}, {time.monotonic() - self.began:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
