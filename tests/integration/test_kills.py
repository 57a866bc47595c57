"""SIGKILL of what a tree depends on, at seeded moments while its children run: it completes, each parent resumed once."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.store import Store

from .conftest import story
from .processes import worker_pids

MOMENTS = range(20)


def test_a_tree_survives_the_death_of_its_owner(client: Client, working_directory: Path) -> None:
    def kill(tree: baton.TreeHandle) -> None:
        pid = Store(client._settings.database).tree(tree.id).owner_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    for seed in MOMENTS:
        events = killed_at_a_moment(client, seed, kill)
        lost = [event for event in events if event.type == "baton.retrying"]
        assert {event.data["cause"] for event in lost} == {"owner"}, f"seed {seed}"


def test_a_tree_survives_the_death_of_a_worker_process(client: Client, working_directory: Path) -> None:
    chance = random.Random(0)

    def kill_a_worker(tree: baton.TreeHandle) -> None:
        os.kill(chance.choice(worker_pids()), signal.SIGKILL)

    for seed in MOMENTS:
        events = killed_at_a_moment(client, seed, kill_a_worker)
        lost = [event for event in events if event.type == "baton.retrying"]
        assert {event.data["cause"] for event in lost} <= {"process"}, f"seed {seed}"
        assert not any(event.data.get("losses") for event in lost), "the death of a shared process was counted"


def test_a_tree_survives_the_death_of_the_directory(client: Client, working_directory: Path) -> None:
    killed = set()

    def kill(tree: baton.TreeHandle) -> None:
        pid = ray.get(client._directory.counts.remote())["pid"]
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    for seed in MOMENTS:
        killed_at_a_moment(client, seed, kill)
    assert len(killed) == len(MOMENTS)


def test_a_tree_submitted_while_the_directory_is_dead_runs(client: Client) -> None:
    os.kill(ray.get(client._directory.counts.remote())["pid"], signal.SIGKILL)
    assert client.submit("patience", worker=lambda baton, ctx: "ran").result() == "ran"


def killed_at_a_moment(client: Client, seed: int, kill: Callable[[baton.TreeHandle], None]) -> list[baton.Event]:
    """Kill after so many naps ended as the seed says, with others under way; the story of the tree, which must be right."""
    ended_before = random.Random(seed).randrange(11)
    tree = client.submit(f"seed {seed}", worker="jobs:naps")
    asleep = started = ended = 0
    for event in tree.events():
        if event.depth == 2:
            started += event.type == "baton.started"
            ended += event.type == "baton.completed"
        asleep = started - ended
        if started == 12 and ended >= ended_before:
            break
    assert asleep > 0, "nothing was running"
    kill(tree)
    assert tree.result(timeout=60) == 12, f"seed {seed}"
    events = story(client, tree)
    resumed = [event for event in events if event.type == "baton.resumed"]
    assert len(resumed) == 4, f"seed {seed}: each of the four parents is resumed once"
    return events


pytestmark = pytest.mark.timeout(600)
