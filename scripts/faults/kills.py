"""kill -9 of any step at random: by the clock, and at the system calls that matter (rename, link, sync, …)."""
import shutil
import signal
import subprocess
import time

from steps import Failure

# Calls after which a file is there, gone, or known to be on the disk.
CALLS = ("rename,renameat,renameat2", "link,linkat", "fsync,fdatasync", "unlink,unlinkat", "write,pwrite64",
         "openat", "mkdir,mkdirat", "ftruncate,fallocate")
# A step is killed at most so often in a row before it may end.
ROW = 3


def strace_works():
    """Whether a process can be killed at a system call here."""
    if not shutil.which("strace"):
        return False
    ran = subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", "inject=openat:signal=KILL:when=1", "true"],
                         capture_output=True)
    return ran.returncode != 0


class Killer:
    """Kills steps of runs until the number asked for is reached; the seed decides where."""

    def __init__(self, made, wanted, calls):
        self.made, self.left, self.calls = made, wanted, calls
        self.seconds = {}
        self.by_step = {}

    def run(self, steps, step, item):
        """A step, killed some times, then to its end; its exit status and stderr."""
        for _ in range(self.made.randint(1, ROW)):
            if self.left == 0:
                break
            if self.calls and self.made.random() < 0.5:
                ended = self.at_call(steps, step, item)
            else:
                ended = self.at_moment(steps, step, item)
            if ended is not None:
                return ended
        return self.timed(steps, step, item)

    def timed(self, steps, step, item):
        began = time.monotonic()
        ran = steps.run(step, item)
        self.seconds[step] = max(self.seconds.get(step, 0.02), time.monotonic() - began)
        return ran.returncode, ran.stderr

    def at_moment(self, steps, step, item):
        process = steps.start(step, item)
        moment = self.made.uniform(0.0, 1.1 * self.seconds.get(step, 0.1))
        try:
            _, stderr = process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            _, stderr = process.communicate()
        return self.ended(step, process.returncode, stderr)

    def at_call(self, steps, step, item):
        call, when = self.made.choice(CALLS), self.made.choice((1, 1, 2, 3, 5, 8, 13, 21))
        before = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                  f"inject={call}:signal=KILL:when={when}")
        ran = steps.run(step, item, before)
        return self.ended(step, ran.returncode, ran.stderr)

    def ended(self, step, code, stderr):
        """Counts a kill; the result, if the process came to its end first."""
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            self.left -= 1
            self.by_step[step] = self.by_step.get(step, 0) + 1
            return None
        return code, stderr


def steps_killed(setting, made, wanted, calls, place=None):
    """Runs of the steps with `wanted` kills in all; how many runs, and kills by step."""
    killer, runs = Killer(made, wanted, calls), 0
    while killer.left > 0:
        steps = place(runs) if place else setting.new("killed")
        one_run(steps, killer, made)
        steps.check()
        runs += 1
    return runs, killer.by_step


def one_run(steps, killer, made):
    code, stderr = killer.run(steps, "plan", None)
    if code != 0:
        raise Failure(f"plan: exit status {code}\n{stderr}")
    for _ in range(100):
        step, items = steps.next()
        if step == "done":
            return
        items = [piece for item in items for piece in split(item, made)]
        made.shuffle(items)
        for item in items:
            code, stderr = killer.run(steps, step, item)
            if code not in ((0, 1) if step == "select" else (0,)):
                raise Failure(f"{step} {item} after a kill: exit status {code}\n{stderr}")
    raise Failure("no end after 100 rounds of status")


def split(item, made):
    """A range cut into a few."""
    phase, start, end = item
    while start < end:
        upto = min(end, start + made.randint(1, 6))
        yield phase, start, upto
        start = upto


def prep_killed(setting, made, wanted, calls):
    """The same of `prep`, which goes on in its own folder."""
    killer, runs = Killer(made, wanted, calls), 0
    while killer.left > 0:
        steps = setting.new("killed-prep")
        code, stderr = killer.run(steps, "prep", None)
        if code != 0:
            raise Failure(f"prep after a kill: exit status {code}\n{stderr}")
        steps.check()
        runs += 1
    return runs, killer.by_step
