"""A directory that dies for good, or finds its database unusable: who asks it goes on, or is told, within bounds."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
import ray

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.errors import ClusterUnusable, DatabaseUnusable
from baton_actors.runtime import cluster
from baton_actors.store import GroupRefused, Store
from baton_actors.testing.store_samples import execute

from .conftest import story


def test_waits_go_on_when_the_directory_is_dead_for_good(
    connected: Callable[..., Client], sqlite_url: str, working_directory: Path, tmp_path: Path
) -> None:
    """The tree that has an owner, and the one that waits for one, which the next directory must know for its own."""
    client = connected(database_url=sqlite_url, max_trees=1)
    bell = tmp_path / "bell"
    held = client.submit("hold", worker="jobs:wait_for_file", context={"file": str(bell)})
    waiting = client.submit("wait", worker="jobs:naps")
    seen: list[baton.Event] = []
    subscriber = threading.Thread(target=lambda: seen.extend(waiting.events()))
    subscriber.start()
    ray.kill(client._directory)

    async def both() -> list[object]:
        bell.write_text("now")
        return [await held, await waiting]

    assert asyncio.run(both()) == ["now", 12]
    subscriber.join()
    assert seen == story(client, waiting)
    assert client.submit("again", worker="jobs:relay", context={"steps": 2}).result() == 2


def test_a_command_finds_another_directory(client: Client, working_directory: Path, tmp_path: Path) -> None:
    tree = client.submit("wait", worker="jobs:wait_for_file", context={"file": str(tmp_path / "never")})
    ray.kill(client._directory)
    tree.cancel("enough")
    with pytest.raises(baton.BatonCancelled):
        tree.result()


def test_a_wait_ends_with_one_line_when_no_directory_can_be_found(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = client.submit("wait", worker="human")

    def no_ray(*_: object, **__: object) -> None:
        raise ClusterUnusable("Ray at 192.0.2.1:6379", "nothing answers there")

    monkeypatch.setattr(cluster, "open_directory", no_ray)
    ray.kill(client._directory)
    tree = client.get(tree.id)
    for ask in (tree.result, lambda: asyncio.run(tree._result_async()), lambda: list(tree.events()), tree.cancel):
        with pytest.raises(ClusterUnusable, match="nothing answers there"):
            ask()


def test_a_submission_is_told_at_once_what_no_waiting_cures(connected: Callable[..., Client], postgresql_url: str) -> None:
    """To a warm owner, to the queue, and to a directory that begins: the server takes no writes any more."""
    import psycopg
    from sqlalchemy import make_url

    client = connected(database_url=postgresql_url)
    assert client.submit("first", worker=lambda baton, ctx: 1).result() == 1
    name = make_url(postgresql_url).database
    with psycopg.connect(make_url(postgresql_url).set(database="postgres").render_as_string(hide_password=False), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        until(lambda: admin.execute(sessions, [name]).fetchone() == (0,))  # what is open goes on as it began
        for _ in range(3):
            with pytest.raises(DatabaseUnusable, match="the server is read-only"):
                client.submit("second", worker=lambda baton, ctx: 2)
        ray.kill(client._directory, no_restart=False)
        with pytest.raises(DatabaseUnusable, match="the server is read-only"):
            client.submit("third", worker=lambda baton, ctx: 3)
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        until(lambda: admin.execute(sessions, [name]).fetchone() == (0,))
    assert client.submit("fourth", worker=lambda baton, ctx: 4).result() == 4
    assert [each.goal for each in client.list()] == ["fourth", "first"]


def test_a_tree_that_the_database_refuses_is_refused_to_who_hands_it_in(connected: Callable[..., Client], sqlite_url: str) -> None:
    """By a rule of the database that this program does not know of; trying again would never end."""
    client = connected(database_url=sqlite_url)
    rule = "CREATE TRIGGER rule BEFORE INSERT ON batons WHEN new.goal = 'no' BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    with closing(Store(sqlite_url)) as store:
        execute(store, rule)
    for _ in range(2):
        with pytest.raises(GroupRefused, match=r"refuses what was to be written \(not this one\); nothing of it was"):
            client.submit("no", worker="human")
    assert client.submit("yes", worker=lambda baton, ctx: 1).result() == 1
    assert [each.goal for each in client.list()] == ["yes"]


def test_a_reader_that_dies_is_found_again(connected: Callable[..., Client], sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_actors.client.socket.gethostname", lambda: "another-machine")
    client = connected(database_url=sqlite_url)
    tree = client.submit("far away", worker=lambda baton, ctx: baton.goal)
    assert tree.result() == "far away"
    assert [each.id for each in client.list()] == [tree.id]
    for no_restart in (False, True):
        ray.kill(ray.get_actor("reader", client._settings.namespace), no_restart=no_restart)
        assert [each.id for each in client.list()] == [tree.id]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells; the test's own time limit ends it."""
    never = Event()
    while not condition():
        never.wait(0.02)
