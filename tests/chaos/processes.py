"""The processes of one Ray session of ours, by what they do: for tests that kill, stop and continue them."""

from pathlib import Path
from typing import Literal

from ray.cluster_utils import Cluster

from tests.integration.processes import command_of, parent_of

Kind = Literal["worker", "owner", "directory"]
_TITLES: dict[Kind, str] = {"worker": "ray::baton run", "owner": "ray::OwnerActor", "directory": "ray::DirectoryActor"}


def pids(cluster: Cluster, kind: Kind) -> list[int]:
    """Processes of that kind that the cluster's own nodes have started, in the order of their ids."""
    raylets = {raylet.process.pid for node in cluster.list_all_nodes() for raylet in node.all_processes.get("raylet", ())}
    running = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in running if command_of(pid).startswith(_TITLES[kind]) and parent_of(pid) in raylets]
