"""Trees between clusters: two namespaces of one Ray stand for two clusters with one database, each with its directory."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import ray

import baton_actors as baton
from baton_actors.baton import root_id
from baton_actors.client import Client, connect
from baton_actors.store import Store
from baton_actors.testing.store_samples import begun, execute, new_root

from .conftest import end_actors, story
from .test_ownership_directory import until


@pytest.fixture
def first(database_url: str, working_directory: Path) -> Iterator[Client]:
    """A client of a cluster that the test ends."""
    namespace = f"first-{os.urandom(6).hex()}"
    yield connect(database_url=database_url, namespace=namespace)
    end_actors(namespace)


def ended(client: Client) -> None:
    """The whole cluster ends at once: its directory, its owners, and with them its runs."""
    end_actors(client._settings.namespace)


def expired(store: Store) -> None:
    """As if 30 seconds had passed since the last renewal."""
    execute(store, "UPDATE trees SET lease_until = 0")


def test_a_tree_of_a_living_cluster_is_not_taken_and_one_of_a_dead_cluster_is(
    first: Client, connected: Callable[..., Client], database_url: str, tmp_path: Path
) -> None:
    bell = tmp_path / "bell"
    tree = first.submit("wait", worker="jobs:many", context={"file": str(bell), "count": 3, "child": "jobs:wait_for_file"})
    second = connected(database_url=database_url)
    assert second.unfinished() == []
    with pytest.raises(baton.NotAllowed, match=r"belongs to another cluster; 'baton resume'"):
        second.get(tree.id).cancel()
    ended(first)
    with closing(Store(database_url, patience=10)) as store:
        epoch = store.tree(tree.id).epoch
        expired(store)
        assert second.unfinished() == [tree.id]
        (resumed,) = second.resume(tree.id)
        bell.write_text("here")
        assert resumed.result() == ["here"] * 3
        assert store.tree(tree.id).epoch > epoch
    story(second, resumed)


def test_a_question_outlives_the_cluster_that_asked_it(first: Client, connected: Callable[..., Client], database_url: str) -> None:
    def ask(task: baton.Baton, ctx: baton.Context) -> object:
        return [each.result for each in ctx.children] if ctx.breakdown else baton.Spawned([baton.Child("which colour?", worker="human")])

    tree = first.submit("paint", worker=ask)
    question = next(event for event in tree.events() if event.type == "baton.waiting")
    ended(first)
    with closing(Store(database_url, patience=10)) as store:
        expired(store)
    second = connected(database_url=database_url)
    assert [each.id for each in second.list(waiting=True)] == [question.baton_id]
    (resumed,) = second.resume(tree.id)
    resumed.answer(question.baton_id, "blue")
    assert resumed.result() == ["blue"]


def test_trees_that_wait_are_admitted_in_order_and_a_woken_one_comes_first(
    connected: Callable[..., Client], sqlite_url: str, working_directory: Path, tmp_path: Path
) -> None:
    client = connected(database_url=sqlite_url, max_trees=1)
    log, bell = tmp_path / "log", tmp_path / "bell"

    def write(task: baton.Baton, ctx: baton.Context) -> None:
        with log.open("a") as lines:
            lines.write(f"{task.goal}\n")

    def ask(task: baton.Baton, ctx: baton.Context) -> object:
        return write(task, ctx) if ctx.breakdown else baton.Spawned([baton.Child("well?", worker="human")])

    asleep = client.submit("woken", worker=ask)
    question = next(event for event in asleep.events() if event.type == "baton.waiting")
    held = client.submit("hold", worker="jobs:wait_for_file", context={"file": str(bell)})
    new = [client.submit(f"new {number}", worker=write) for number in range(5)]
    until(lambda: client._read("tree", asleep.id).owner is None)
    asleep.answer(question.baton_id, "now")  # a command does not wait for a place
    assert asleep.result() is None
    bell.write_text("go")
    for tree in (held, *new):
        tree.result()
    assert log.read_text().splitlines() == ["woken", *(f"new {number}" for number in range(5))]


@pytest.mark.long
def test_a_tree_that_waits_for_a_time_has_no_owner_until_then(client: Client) -> None:
    """Hibernation with a `wake_at`; the directory's timer wakes it."""
    at = time.time_ns() // 1_000_000 + 10_800
    tree = client.submit("later", worker=lambda baton, ctx: "ran", not_before=at)
    until(lambda: client._read("tree", tree.id).owner is None)
    assert client._read("tree", tree.id).wake_at is not None
    assert tree.result() == "ran"
    assert [event.at >= at for event in tree.events() if event.type == "baton.started"] == [True]


def test_a_stopped_process_that_a_dead_cluster_left_with_the_files_lock_is_ended(sqlite_url: str, connected: Callable[..., Client]) -> None:
    with closing(Store(sqlite_url)) as store:
        store.upgrade()
        holder = subprocess.Popen(
            ["ray::OwnerActor", "-c", HOLD, sqlite_url.removeprefix("sqlite:///")],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        root = new_root(id=(id := root_id(1, b"0123456789")), root_id=id)
        begun(store, root, lease_ms=-1, cluster_id="gone", owner_pid=holder.pid)
        holder.stdin.write(b"lock\n")
        holder.stdin.flush()
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGSTOP)
        client = connected(database_url=sqlite_url)
        assert client.submit("go on", worker=lambda baton, ctx: 1).result() == 1
        assert holder.wait() == -signal.SIGKILL
        holder.communicate()


HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
input()
held.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
input()
"""


@pytest.mark.long
def test_20_trees_at_once_on_one_file_show_no_error(
    connected: Callable[..., Client], sqlite_url: str, working_directory: Path, tmp_path: Path
) -> None:
    """Q1: 20 owners and as many subscribers."""
    client = connected(database_url=sqlite_url, max_trees=20, warm_owners=2)
    bell = tmp_path / "bell"
    context = {"file": str(bell), "count": 50, "child": "jobs:wait_for_file"}
    trees = [client.submit(f"tree {number}", worker="jobs:many", context=context) for number in range(20)]
    stories: dict[str, list[baton.Event]] = {}
    threads = [threading.Thread(target=lambda tree=tree: stories.update({tree.id: list(tree.events())})) for tree in trees]
    for thread in threads:
        thread.start()
    until(lambda: len(ray.get(client._directory.counts.remote())["lent"]) == 20)
    bell.write_text("go")
    assert [tree.result() for tree in trees] == [["go"] * 50] * 20
    for thread in threads:
        thread.join()
    assert all(stories[tree.id] == story(client, tree) for tree in trees)
    assert not any(event.type == "baton.retrying" for told in stories.values() for event in told)
