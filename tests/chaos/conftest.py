"""Rays of these tests' own, begun and ended with each file: what is killed here harms nobody else."""

import logging
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import ray
from ray.cluster_utils import Cluster

from baton_actors.testing.crash_points import CrashPoints, crash_points

SERVER = os.environ.get("BATON_TEST_POSTGRESQL", "")
HERE = Path(__file__).parent
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_num_workers_soft_limit": "16",
    # A dead node is known after two seconds instead of seventeen.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}
NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 100 * 1024 * 1024}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before the tests that share one Ray until the session ends: a process can be connected to one only."""
    items.sort(key=lambda item: HERE not in item.path.parents)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """The variables of this process, and of those it starts, for as long as the block lasts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def ray_nodes(count: int) -> Iterator[Cluster]:
    """A Ray cluster on this machine, with this process connected. Its files stand apart, so that nobody joins it by accident."""
    folder = tempfile.mkdtemp(prefix="chaos")  # short: sockets are in it, whose paths have 107 characters at most
    with environment(**_ENVIRONMENT, RAY_TMPDIR=folder, PGPASSWORD=urlsplit(SERVER).password or ""):
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        try:
            for _ in range(count - 1):
                cluster.add_node(**NODE)
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def project(folder: Path) -> Iterator[None]:
    """Stand in a folder that holds the worker, as a user does who submits."""
    before = Path.cwd()
    shutil.copy(HERE / "playing.py", folder)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        sys.modules.pop("playing", None)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashPoints]:
    """A Ray of one node whose processes look at crash points; the test stands in a folder with the worker."""
    folder = tmp_path_factory.mktemp("project")
    with crash_points(tmp_path_factory.mktemp("points") / "points.json") as made, project(folder), ray_nodes(1):
        yield made


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """URLs of fresh databases, by kind; `sqlite` or `postgresql`."""
    with ExitStack() as made:

        def url(kind: str) -> str:
            if kind == "sqlite":
                return f"sqlite:///{tmp_path_factory.mktemp('database') / 'baton.db'}"
            return made.enter_context(postgresql_database())

        yield url


@contextmanager
def postgresql_database() -> Iterator[str]:
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
        with psycopg.connect(SERVER, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
