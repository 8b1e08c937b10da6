#!/usr/bin/env python3
"""A Ray cluster of some nodes on this machine, ray_prep.py on it, one node killed in the middle.

    ray_nodes.py NODES RECIPE --work WORK [--kill-after SECONDS] [-- OPTIONS of ray_prep.py]

Every node is a raylet of its own on loopback with one core. With --kill-after a node's raylet and what
runs below it are killed (SIGKILL) so many seconds after the first unit is there. Exit status: that of ray_prep.py.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

# Makes Ray take the loopback address for every node of this machine, as it does by default on other systems.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
# A lost node is noticed after about 3 s, where a cluster of many machines takes 15 s or more.
os.environ.update({"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "1000",
                   "RAY_health_check_timeout_ms": "3000", "RAY_health_check_failure_threshold": "2"})
from ray.cluster_utils import Cluster  # noqa: E402

from gate import kill_tree  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=int)
    parser.add_argument("recipe")
    parser.add_argument("--work", required=True)
    parser.add_argument("--kill-after", type=float)
    parser.add_argument("--memory", type=int, default=4 << 30, help="of a node")
    ours, options = sys.argv[1:], []
    if "--" in ours:
        at = ours.index("--")
        ours, options = ours[:at], ours[at + 1:]
    args = parser.parse_args(ours)
    # The head runs no task: the driver and the store of the cluster's state live there.
    small = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 0, "memory": 1 << 30, "include_dashboard": False, **small})
    nodes = [cluster.add_node(num_cpus=1, memory=args.memory, **small) for _ in range(args.nodes)]
    script = pathlib.Path(__file__).resolve().parent.parent / "ray_prep.py"
    try:
        driver = subprocess.Popen([sys.executable, str(script), args.recipe, "--work", args.work,
                                   "--address", cluster.address, *options])
        if args.kill_after is not None and wait_for_work(args.work, driver):
            kill(nodes.pop(), args.kill_after)
        return driver.wait()
    finally:
        for node in [*nodes, cluster.head_node]:
            # Agents that are just starting would outlive their raylet.
            kill_tree(raylet(node))
            node.kill_all_processes(check_alive=False, allow_graceful=False)


def wait_for_work(work, driver):
    """Until something of map is there; `False` if the run ended before."""
    while driver.poll() is None:
        if "://" in work or any(path.is_file() and path.suffix not in (".json", ".blk")
                                for path in pathlib.Path(work).glob("**/*")):
            return True
        time.sleep(0.05)
    return False


def kill(node, seconds):
    time.sleep(seconds)
    kill_tree(raylet(node))
    print(f"node killed: raylet {raylet(node)} and all below it", file=sys.stderr, flush=True)


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


if __name__ == "__main__":
    sys.exit(main())
