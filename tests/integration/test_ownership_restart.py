"""A whole Ray ends with trees at work, and another one begins: each in processes of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import baton_actors
from baton_actors.store import Store
from baton_actors.testing.store_samples import execute

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

WORKERS = """
import baton_actors as baton
from jobs import wait_for_file

def ask(task, ctx):
    return [each.result for each in ctx.children] if ctx.breakdown else baton.Spawned([baton.Child("which colour?", worker="human")])
"""

#: A private Ray, which ends with its program while one tree waits for an answer and the children of another are at work.
FIRST = """
import json, sys
import baton_actors as baton

client = baton.connect()
asking = client.submit("paint", worker="workers:ask")
question = next(event for event in asking.events() if event.type == "baton.waiting")
working = client.submit("wait", worker="jobs:many", context={"file": sys.argv[1], "count": 3, "child": "workers:wait_for_file"})
started = (event for event in working.events() if event.type == "baton.started" and event.depth)
print(json.dumps([asking.id, question.baton_id, working.id]), [next(started) for _ in range(3)][:0])
"""

RESUMED = """
import json, sys
import baton_actors as baton

client = baton.connect()
asking, working = (client.resume(id)[0] for id in sys.argv[1:3])
"""

#: As `ray start` makes it: the program joins, and takes over what it finds.
ADOPTED = """
import json, sys
import baton_actors as baton
from ray.cluster_utils import Cluster

head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 * 1024 * 1024}
cluster = Cluster(initialize_head=True, head_node_args=head)
client = baton.connect(address=cluster.address)
assert not client.private
asking, working = (client.get(id) for id in sys.argv[1:3])
"""

LAST = """
asking.answer(sys.argv[3], "blue")
print(json.dumps([asking.result(), working.result()]))
client.close()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a user without settings: no cluster, a database of its own, and a folder for Ray that is short enough for its sockets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "BATON_", "PG"))}
    folder = tempfile.mkdtemp(prefix="baton-")
    yield {
        **kept,
        "BATON_DATABASE_URL": f"sqlite:///{tmp_path / 'baton.db'}",
        "PYTHONPATH": f"{Path(baton_actors.__file__).parents[1]}:{tmp_path}",
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    shutil.rmtree(folder, ignore_errors=True)  # Ray's last processes may still be writing


@pytest.mark.parametrize("beginning", [RESUMED, ADOPTED], ids=["resumed in a private one", "adopted by one that was started"])
def test_trees_of_a_ray_that_ended_finish_in_another(beginning: str, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    (tmp_path / "jobs.py").write_text((Path(__file__).parent / "jobs.py").read_text())
    bell = tmp_path / "bell"
    asking, question, working = json.loads(python(environment, tmp_path, FIRST, str(bell)).removesuffix(" []\n"))
    with closing(Store(environment["BATON_DATABASE_URL"], patience=10)) as store:
        assert (store.tree(asking).status, store.tree(working).status) == ("open", "open")
        execute(store, "UPDATE trees SET lease_until = 0")  # as if 30 seconds had passed
        bell.write_text("here")
        said = python(environment, tmp_path, beginning + LAST, asking, working, question)
        assert json.loads(said) == [["blue"], ["here"] * 3]
        for id in (asking, working):
            assert [event.seq for event in store.events(id, 0, 10_000)] == list(range(1, store.tree(id).seq + 1))


def python(environment: dict[str, str], folder: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
