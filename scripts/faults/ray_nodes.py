#!/usr/bin/env python3
"""A Ray cluster of some nodes on this machine, ray_prep.py on it, one node killed in the middle.

    ray_nodes.py NODES RECIPE --work WORK [--kill-after SECONDS] [-- OPTIONS of ray_prep.py]

Every node is a raylet of its own on loopback with one core. With --kill-after a node's raylet is killed
(SIGKILL) so many seconds after the first unit is there. Exit status: that of ray_prep.py.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
from ray.cluster_utils import Cluster  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=int)
    parser.add_argument("recipe")
    parser.add_argument("--work", required=True)
    parser.add_argument("--kill-after", type=float)
    parser.add_argument("--memory", type=int, default=4 << 30, help="of a node")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    # The head runs no task: the driver and the store of the cluster's state live there.
    loopback = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 0, "memory": 1 << 30, "include_dashboard": False, **loopback})
    nodes = [cluster.add_node(num_cpus=1, memory=args.memory, **loopback) for _ in range(args.nodes)]
    script = pathlib.Path(__file__).resolve().parent.parent / "ray_prep.py"
    try:
        driver = subprocess.Popen([sys.executable, str(script), args.recipe, "--work", args.work,
                                   "--address", cluster.address, *args.options])
        if args.kill_after is not None and wait_for_work(args.work, driver):
            kill(nodes.pop(), args.kill_after)
        return driver.wait()
    finally:
        cluster.shutdown()


def wait_for_work(work, driver):
    """Until something of map is there; `False` if the run ended before."""
    staged = pathlib.Path(work)
    while driver.poll() is None:
        if "://" in work or any(staged.glob("**/map*/**/*")):
            return True
        time.sleep(0.05)
    return False


def kill(node, seconds):
    time.sleep(seconds)
    raylet = node.all_processes["raylet"][0].process
    os.kill(raylet.pid, signal.SIGKILL)
    print(f"node killed: raylet {raylet.pid}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
