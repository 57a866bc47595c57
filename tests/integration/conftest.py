"""One Ray for the session; a namespace, a database and so a directory of its own for each test."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import ray

import baton_actors as baton
from baton_actors.client import Client, connect

SERVER = os.environ.get("BATON_TEST_POSTGRESQL", "")
HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def ray_cluster() -> Iterator[None]:
    # A database URL travels without its password, so the nodes must have it, as on a real cluster.
    os.environ["PGPASSWORD"] = urlsplit(SERVER).password or ""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_worker_niceness="0", RAY_num_workers_soft_limit="16")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=100 * 1024 * 1024,
    )
    yield
    ray.shutdown()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'baton.db'}"


@pytest.fixture
def postgresql_url() -> Iterator[str]:
    if not SERVER:
        pytest.skip("set BATON_TEST_POSTGRESQL=postgresql://user:password@host/postgres (a superuser's)")
    import psycopg
    from sqlalchemy import make_url

    name = f"baton_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(SERVER, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def connected() -> Iterator[Callable[..., Client]]:
    """Connect to a fresh namespace; its actors are ended with the test."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    clients: list[Client] = []

    def open_client(**settings: Any) -> Client:
        clients.append(connect(namespace=namespace, **settings))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()
    end_actors(namespace)


@pytest.fixture
def client(connected: Callable[..., Client], sqlite_url: str) -> Client:
    return connected(database_url=sqlite_url)


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of workers, `jobs.py`, from which the test submits as a user would."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "jobs.py").write_text((HERE / "jobs.py").read_text())
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("jobs", None)


def end_actors(namespace: str) -> None:
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["namespace"] == namespace:
            ray.kill(ray.get_actor(each["name"], namespace))


def story(client: Client, tree: baton.TreeHandle) -> list[baton.Event]:
    """All events of an ended tree, checked for gaps and repeated resumes."""
    events = list(tree.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    resumes = [(event.baton_id, event.data["generation"], event.data["breakdown"]) for event in events if event.type == "baton.resumed"]
    assert len(resumes) == len(set(resumes)), "a parent was resumed twice for one breakdown"
    return events


__all__ = ["closing", "end_actors", "story"]
