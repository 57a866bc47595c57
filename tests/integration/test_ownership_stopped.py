"""Processes that are stopped (SIGSTOP) and continued: nobody waits for them for ever, and what they were deposed from they do not write.

Ray does not notice a stopped process; it takes some ten seconds until the directory does.
"""

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import ray

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.store import Store

from .conftest import story
from .test_ownership_directory import until

pytestmark = pytest.mark.long


@pytest.fixture
def owned(connected: Callable[..., Client], database_url: str, working_directory: Path) -> Client:
    return connected(database_url=database_url, warm_owners=2)


def test_a_submission_that_meets_a_stopped_warm_owner_goes_to_another(
    connected: Callable[..., Client], sqlite_url: str, working_directory: Path
) -> None:
    client = connected(database_url=sqlite_url, warm_owners=1)
    (idle,) = idle_owners(client)
    os.kill(idle, signal.SIGSTOP)
    assert client.submit("go on", worker="jobs:relay", context={"steps": 3}).result() == 3
    assert idle not in idle_owners(client)


def test_a_tree_whose_owner_is_stopped_is_taken_over_and_the_first_writes_nothing_more(owned: Client, tmp_path: Path) -> None:
    """O2."""
    bell = tmp_path / "bell"
    tree = owned.submit("wait", worker="jobs:many", context={"file": str(bell), "count": 20, "child": "jobs:wait_for_file"})
    started = (event for event in tree.events() if event.type == "baton.started" and event.depth)
    for _ in range(20):
        next(started)
    with closing(Store(owned._settings.database, patience=10)) as store:
        first = store.tree(tree.id)
        assert first.owner_pid is not None
        os.kill(first.owner_pid, signal.SIGSTOP)
        bell.write_text("wake up")  # the workers report to the stopped process
        until(lambda: store.tree(tree.id).epoch > first.epoch)
        with suppress(ProcessLookupError):
            os.kill(first.owner_pid, signal.SIGCONT)
        assert tree.result() == ["wake up"] * 20
        last = store.tree(tree.id)
        assert (last.epoch, last.seq) == (first.epoch + 1, len(story(owned, tree)))
        assert store.counts(tree.id) == {"completed": 21}


def test_a_command_reaches_a_tree_whose_owner_is_stopped(owned: Client, tmp_path: Path) -> None:
    tree = owned.submit("wait", worker="jobs:wait_for_file", context={"file": str(tmp_path / "never")})
    os.kill(owner_pid(owned, tree), signal.SIGSTOP)
    tree.cancel("enough")
    with pytest.raises(baton.BatonCancelled, match="enough"):
        tree.result()


def test_an_owner_that_is_stopped_in_a_transaction_does_not_keep_the_file_locked(
    connected: Callable[..., Client], sqlite_url: str, working_directory: Path
) -> None:
    client = connected(database_url=sqlite_url, warm_owners=2)
    other = client.submit("another", worker="jobs:relay", context={"steps": 100_000})
    tree = client.submit("write and write", worker="jobs:relay", context={"steps": 100_000})
    pid = owner_pid(client, tree)
    stop_in_a_transaction(pid, Path(sqlite_url.removeprefix("sqlite:///")))
    for each in (other, tree):
        each.cancel("enough")
        with pytest.raises(baton.BatonCancelled):
            each.result()
    assert client.submit("go on", worker="jobs:relay", context={"steps": 3}).result() == 3


def stop_in_a_transaction(pid: int, file: Path) -> None:
    """Stop an owner that writes all the time while it has the file's lock."""
    never = Event()
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as prober:
        while True:
            os.kill(pid, signal.SIGSTOP)
            if all(is_locked(prober) or never.wait(0.02) for _ in range(10)):  # no other process holds it for so long
                return
            os.kill(pid, signal.SIGCONT)
            never.wait(0.005)


def is_locked(prober: sqlite3.Connection) -> bool:
    try:
        prober.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return not Event().wait(0.02)
    prober.execute("ROLLBACK")
    return False


def owner_pid(client: Client, tree: baton.TreeHandle) -> int:
    """The process that has the tree."""
    until(lambda: client._read("tree", tree.id).owner_pid is not None)
    return int(client._read("tree", tree.id).owner_pid)


def idle_owners(client: Client) -> list[int]:
    """Processes of owners without a tree, once all that are to be kept have started."""
    until(lambda: ray.get(client._directory.counts.remote())["idle"] > 0)
    return [each["pid"] for each in states(client) if each["root_id"] is None]


def states(client: Client) -> list[dict[str, Any]]:
    namespace = client._settings.namespace
    names = [each["name"] for each in ray.util.list_named_actors(True) if each["namespace"] == namespace]
    return ray.get([ray.get_actor(name, namespace).status.remote() for name in names if name.startswith("owner-")])
