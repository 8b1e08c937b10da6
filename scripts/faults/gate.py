"""A gate in front of map: one task may pass, the others are held until it is opened. So a node is lost in
the middle of map for certain, with one unit there and others missing, however fast the machine is."""
import contextlib
import os
import pathlib
import shlex
import signal
import time

from steps import Failure

# Seconds until an engine must have brought the tasks to the gate, or noticed that a process is gone.
PATIENCE = 120.0

# Whoever makes the folder `first` may pass. What is held says who it is and becomes potable when the gate opens:
# the number of the process stays the same.
WRAPPER = """#!/bin/sh
if [ "$1" = map ] && [ ! -e {place}/open ] && ! mkdir {place}/first 2>/dev/null; then
    echo "${{SLURMD_NODENAME:-}}" >{place}/$$.new
    mv {place}/$$.new {place}/$$.held
    while [ ! -e {place}/open ]; do sleep 0.05; done
fi
exec {potable} "$@"
"""


class Gate:
    """Use as a context: it is open at the end, whatever happened. `binary` goes in place of potable."""

    def __init__(self, steps, folder):
        self.steps, self.place = steps, pathlib.Path(folder)
        self.place.mkdir(parents=True)
        self.binary = str(self.place / "potable")
        potable = os.path.abspath(steps.setting.potable)
        pathlib.Path(self.binary).write_text(WRAPPER.format(place=shlex.quote(str(self.place)), potable=shlex.quote(potable)))
        os.chmod(self.binary, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()

    def open(self):
        (self.place / "open").touch()

    def held(self):
        """Processes that are held, and the Slurm nodes that they are on."""
        return {int(path.stem): path.read_text().strip() for path in self.place.glob("*.held")
                if pathlib.Path("/proc", path.stem).exists()}

    def missing(self):
        """Units that are there, and units that are not."""
        phases = self.steps.status()["phases"]
        missing = sum(end - start for phase in phases for start, end in phase["missing_units"])
        return sum(phase["units"] for phase in phases) - missing, missing

    def wait(self, launcher, node=None):
        """Until a unit is there and a task is held (on this node of Slurm); the process that is held."""
        for _ in patiently("no task was held at the gate"):
            if launcher.poll() is not None:
                raise Failure(f"the launcher ended before the node was lost: exit status {launcher.returncode}")
            found = [pid for pid, where in sorted(self.held().items()) if node in (None, where)]
            if found and self.missing()[0] > 0:
                return found[0]

    def lost(self, pid):
        """Asserts that the node is lost in the middle: the process held on it is gone, units are missing. Opens
        the gate, and returns what to say of it."""
        for _ in patiently(f"process {pid} lives on, but its node is lost"):
            if not running(pid):
                break
        there, missing = self.missing()
        if there == 0 or missing == 0:
            raise Failure(f"not in the middle of map: {there} units there, {missing} missing")
        self.open()
        return f"{there} units there and {missing} missing"


def patiently(what):
    """Turns of waiting for something; an error that says `what` when patience is at an end."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield
        time.sleep(0.05)
    raise Failure(f"{what} after {PATIENCE:.0f} s")


def stat_of(pid):
    """Name, state and parent of a process; `None` if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        name, _, rest = pathlib.Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        state, parent = rest.split()[:2]
        return name, state, int(parent)
    return None


def running(pid):
    found = stat_of(pid)
    return found is not None and found[1] not in "ZX"


def kill_tree(pid):
    """Kills a process and all below it, as the loss of a machine does. A worker of Ray may outlive its raylet."""
    tree = [pid]
    for parent in tree:
        tree += [int(place.name) for place in pathlib.Path("/proc").glob("[0-9]*")
                 if (found := stat_of(int(place.name))) and found[2] == parent]
    for one in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def above(pid, name):
    """The nearest process above this one with a name."""
    while found := stat_of(pid):
        if found[0] == name:
            return pid
        pid = found[2]
    raise Failure(f"no `{name}` stands above the task that is held")
