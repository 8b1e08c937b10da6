"""Damage to files, full disks, wrong clocks, and several workers on one piece of work."""
import os
import pathlib
import shutil
import subprocess
import time

from steps import Failure

YEAR = 365 * 24 * 3600


def duplicated(setting, made, workers=3):
    """Every step by several processes at once; all must end well."""
    steps, started = setting.new("duplicated"), 0
    todo = [("plan", None)]
    for _ in range(60):
        for step, item in todo:
            processes = [steps.start(step, item) for _ in range(workers)]
            started += workers
            for process in processes:
                _, stderr = process.communicate()
                # One that selects while another has started a further round finds its units missing.
                early = step == "select" and "not mapped" in stderr
                if process.returncode not in ((0, 1) if step == "select" else (0,)) and not early:
                    raise Failure(f"{step} {item}, {workers} at once: exit status {process.returncode}\n{stderr}")
        step, items = steps.next()
        if step == "done":
            steps.check()
            return started
        todo = [(step, item) for item in items]
        made.shuffle(todo)
    raise Failure("not done after 60 rounds of status")


def upto(steps, last):
    """Does what is missing until the step after `last` is next."""
    ran = steps.run("plan")
    if ran.returncode != 0:
        raise Failure(f"plan: exit status {ran.returncode}\n{ran.stderr}")
    order = ["map", "select", "reduce", "seal", "done"]
    done_map = False
    for _ in range(60):
        step, items = steps.next()
        done_map = done_map or step == "select"
        if order.index(step) > order.index(last) and done_map:
            return
        for item in items:
            steps.run(step, item)
    raise Failure("not done after 60 rounds of status")


def staged(steps):
    """All files of the work folder but the plan and locks, and the shards that are not sealed yet."""
    work, shards = pathlib.Path(steps.work), steps.out / "shards"
    return sorted(path for path in (*work.glob("**/*"), *shards.glob("**/*"))
                  if path.is_file() and path.name not in ("plan.json", "lock")
                  and (path.is_relative_to(shards) or not path.is_relative_to(steps.out)) and path.stat().st_size > 0)


HOW = ("one byte changed", "cut short", "emptied", "removed", "bytes added")


def harm(path, how, made):
    data = bytearray(path.read_bytes())
    if how == "one byte changed":
        data[made.randrange(len(data))] ^= 1 << made.randrange(8)
    elif how == "cut short":
        del data[made.randrange(len(data)):]
    elif how == "emptied":
        data.clear()
    elif how == "bytes added":
        data += bytes(made.randrange(256) for _ in range(made.randint(1, 64)))
    else:
        path.unlink()
        return
    path.write_bytes(data)


def damaged(setting, made, after, how):
    """Some files of the work folder harmed when the step `after` is done; found, done again, same bytes."""
    steps = setting.new("damaged")
    upto(steps, after)
    files = staged(steps)
    if not files:
        raise Failure(f"no file in {steps.work} after {after}")
    chosen = made.sample(files, min(len(files), made.randint(1, 3)))
    for path in chosen:
        harm(path, how, made)
    try:
        failed = steps.finish()
        steps.check()
    except Failure as failure:
        names = ", ".join(str(path.relative_to(steps.out.parent)) for path in chosen)
        raise Failure(f"{how} after {after}: {names}: {failure}") from None
    return len(chosen), len(failed)


def plan_damaged(setting, made, how):
    """A harmed plan.json is an error that names it, whatever step reads it."""
    steps = setting.new("plan-damaged")
    upto(steps, "map")
    harm(pathlib.Path(steps.work) / "plan.json", how, made)
    ran = steps.run("select", (None, 0, 1))
    if ran.returncode != 2 or "plan.json" not in ran.stderr or "hint:" not in ran.stderr:
        raise Failure(f"select with plan.json {how}: exit status {ran.returncode}\n{ran.stderr}")
    if (steps.out / "manifest.json").exists():
        raise Failure("sealed with a harmed plan")


class Disk:
    """A small disk in memory that can be made larger."""

    def __init__(self, place, size):
        self.place = pathlib.Path(place)
        self.place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "potable-faults", str(self.place)],
                       check=True, capture_output=True)

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.place)], check=True, capture_output=True)

    def leave(self, pages):
        """Makes it so small that so many pages are free."""
        state = os.statvfs(self.place)
        # A size of 0 would be no limit.
        self.resize(str(max(1, state.f_blocks - state.f_bfree + pages) * state.f_frsize))

    def close(self):
        subprocess.run(["umount", "-l", str(self.place)], capture_output=True)


def disks_allowed(folder):
    """Whether a tmpfs can be mounted here."""
    try:
        Disk(pathlib.Path(folder) / "try-disk", "64k").close()
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


def full(setting, step, pages):
    """A disk with so many free pages when `step` is about to run: an error that says so, and once there is
    room, the same bytes. A step that fits in them all the same is not the one that is looked for."""
    place = setting.folder / "full"
    shutil.rmtree(place, ignore_errors=True)
    disk = Disk(place / "disk", "512m")
    try:
        steps = setting.new("full/run", work=str(disk.place / "work"))
        steps.out = disk.place / "out"
        steps.out_uri = str(steps.out)
        before = {"map": "plan", "select": "map", "reduce": "select", "seal": "reduce"}.get(step)
        if before == "plan":
            steps.run("plan")
        elif before:
            upto(steps, before)
        disk.leave(pages)
        items = [None] if step == "plan" else steps.next()[1]
        failed = [ran for ran in (steps.run(step, *([item] if item else [])) for item in items)
                  if ran.returncode not in ((0, 1) if step == "select" else (0,))]
        for ran in failed:
            if ran.returncode != 2 or "space" not in ran.stderr.lower() or "hint:" not in ran.stderr:
                raise Failure(f"{step} on a full disk: exit status {ran.returncode}\n{ran.stderr}")
        if failed and list(steps.out.glob("**/manifest.json")):
            raise Failure("sealed on a full disk")
        disk.resize("512m")
        ran = steps.run("plan")
        if ran.returncode != 0:
            raise Failure(f"plan, when there is room again: exit status {ran.returncode}\n{ran.stderr}")
        steps.finish()
        steps.check()
        return len(failed)
    finally:
        disk.close()


def skewed(setting, made):
    """Each step on a machine with a clock of its own, ten years back or ahead, and files with such times."""
    steps = setting.new("skewed")
    todo = [("plan", None)]
    for _ in range(60):
        for step, item in todo:
            shift = made.randint(-10 * YEAR, 10 * YEAR)
            ran = steps.run(step, item, ("faketime", "-f", f"{shift:+d}s"))
            if ran.returncode not in ((0, 1) if step == "select" else (0,)):
                raise Failure(f"{step} with a clock off by {shift} s: exit status {ran.returncode}\n{ran.stderr}")
            for path in staged(steps):
                when = time.time() + made.randint(-10 * YEAR, 10 * YEAR)
                os.utime(path, (when, when))
        step, items = steps.next()
        if step == "done":
            steps.check()
            return
        todo = [(step, item) for item in items]
    raise Failure("not done after 60 rounds of status")
