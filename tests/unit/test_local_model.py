"""The local model's server and the actor around it, with a stand-in for the native server: it need not be installed."""

import asyncio
import pickle
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from baton_actors.agent import local
from baton_actors.agent.local import HONEST, LocalServer, introduction, model_name, threads
from baton_actors.agent.weights import SMOLLM2
from baton_actors.errors import ModelUnusable
from baton_actors.runtime import local_model
from baton_actors.runtime.local_model import LocalModelActor

WEIGHTS = Path("/models/Own-7B.Q4.gguf")


class NativeServer:
    """Takes what the real one takes."""

    def __init__(self, parameters: Any) -> None:
        if parameters.model.path != str(WEIGHTS):
            raise RuntimeError("Failed to init server, please check the input params.")
        self.parameters = parameters
        self.listening_address = "http://127.0.0.1:4321"


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("xllamacpp")
    module.CommonParams = lambda: SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace())
    module.Server = NativeServer
    monkeypatch.setitem(sys.modules, "xllamacpp", module)


def test_a_file_is_served_on_a_free_port_of_this_machine_only(native: None) -> None:
    server = LocalServer(WEIGHTS)
    asked: Any = server._server.parameters
    assert server.base_url == "http://127.0.0.1:4321/v1"
    assert (asked.hostnames, asked.port) == (["127.0.0.1"], 0)
    assert asked.n_ctx // asked.n_parallel == local.CONTEXT_TOKENS
    assert asked.model_alias == {"Own-7B.Q4"}


def test_a_file_that_cannot_be_loaded_is_named(native: None) -> None:
    with pytest.raises(ModelUnusable) as caught:
        LocalServer(Path("/models/broken.gguf"))
    assert "/models/broken.gguf" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_server_that_is_not_installed_is_told_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelUnusable, match=r"pip install 'baton_actors\[local\]'"):
        LocalServer(WEIGHTS)


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (4, 2), (8, 4), (64, 4)])
def test_half_of_the_cores_are_left_to_others(cores: int, expected: int) -> None:
    assert threads(cores) == expected


def test_the_small_model_is_introduced_honestly_and_another_by_its_name() -> None:
    small = model_name(Path("/cache") / SMOLLM2.file)
    assert introduction(small) == HONEST
    for told in ("135 million", "often wrong", "OPENAI_API_KEY", "OPENAI_BASE_URL", "BATON_MODEL"):
        assert told in HONEST
    assert "Own-7B.Q4" in introduction(model_name(WEIGHTS))


def test_all_who_ask_while_it_loads_share_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Path] = []
    may_go_on = threading.Event()

    def load(path: Path) -> Any:
        loads.append(path)
        may_go_on.wait(30)
        return SimpleNamespace(base_url="http://127.0.0.1:1/v1")

    monkeypatch.setattr(local_model, "weights", lambda say, given: Path(given))
    monkeypatch.setattr(local_model, "LocalServer", load)

    async def ask() -> list[str]:
        actor = LocalModelActor(str(WEIGHTS))
        asking = [asyncio.ensure_future(actor.base_url()) for _ in range(20)]
        asyncio.get_running_loop().call_soon(may_go_on.set)
        urls = await asyncio.gather(*asking)
        return [*urls, await actor.base_url()]

    assert set(asyncio.run(ask())) == {"http://127.0.0.1:1/v1"}
    assert loads == [WEIGHTS]


def test_one_who_stops_waiting_does_not_stop_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    loads: list[Path] = []

    def load(path: Path) -> Any:
        loads.append(path)
        may_go_on.wait(30)
        return SimpleNamespace(base_url="there")

    monkeypatch.setattr(local_model, "weights", lambda say, given: Path(given))
    monkeypatch.setattr(local_model, "LocalServer", load)

    async def ask() -> str:
        actor = LocalModelActor(str(WEIGHTS))
        first = asyncio.ensure_future(actor.base_url())
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.ensure_future(actor.base_url())
        await asyncio.sleep(0)
        may_go_on.set()
        return await second

    assert asyncio.run(ask()) == "there"
    assert len(loads) == 1


def test_a_load_that_failed_is_told_to_all_and_tried_again_when_next_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [ModelUnusable("the local model", "the disk is full"), WEIGHTS]

    def find(say: Any, given: str | None) -> Path:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Path(answer)

    monkeypatch.setattr(local_model, "weights", find)
    monkeypatch.setattr(local_model, "LocalServer", lambda path: SimpleNamespace(base_url="there"))

    async def ask() -> tuple[list[Any], str]:
        actor = LocalModelActor(None)
        both = await asyncio.gather(actor.base_url(), actor.base_url(), return_exceptions=True)
        return both, await actor.base_url()

    both, then = asyncio.run(ask())
    assert [str(error) for error in both] == ["the local model: the disk is full"] * 2
    assert then == "there"
