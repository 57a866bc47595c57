"""An agent of the tests' own in real worker processes: what it saves, asks and whispers, by way of a real owner."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import baton_actors as baton
from baton_actors.client import Client, prepared
from baton_actors.events import Whisper

from .conftest import story

HERE = Path(__file__).parent


@pytest.fixture
def played(working_directory: Path) -> Iterator[Path]:
    """The working directory, with the agent in it."""
    (working_directory / "played_agent.py").write_text((HERE / "played_agent.py").read_text())
    yield working_directory
    sys.modules.pop("played_agent", None)


def handed_in(client: Client, folder: Path) -> baton.TreeHandle:
    """A tree whose agent is given settings of its own."""
    task = prepared(client._settings, "talk", worker="played_agent:root", context={"folder": str(folder)}, budget={"batons": 9})
    return client.hand_in(replace(task, agent={"base_url": "http://127.0.0.1:1/v1"}))


def test_a_conversation_goes_on_over_a_hand_over_and_is_heard(
    connected: Callable[..., Client], database_url: str, played: Path, tmp_path: Path
) -> None:
    client = connected(database_url=database_url)
    tree = handed_in(client, tmp_path)
    heard: list[Whisper] = []

    def beside(whisper: Whisper) -> None:
        heard.append(whisper)
        if "".join(each.text for each in heard if each.attempt == whisper.attempt and each.kind == "text") == "so far":
            (tmp_path / f"go-{whisper.attempt - 1}").touch()

    events = list(tree.events(beside=beside))
    rows, part, agent, learned, room, state = tree.result()
    first = {"role": "assistant", "content": "word 0"}
    assert (rows, part, state) == ([first], ["56789", 10_000], 0)
    assert (agent, learned, room) == ({"base_url": "http://127.0.0.1:1/v1"}, {"m": {"seconds": 2.0}}, 6)
    assert [event.seq for event in events] == [event.seq for event in story(client, tree)]
    talker = tree.snapshot().batons[2]
    assert (talker.goal, talker.attempt, talker.usage, talker.rounds) == ("talk", 2, {"tokens_in": 10}, 2)
    assert {whisper.baton_id for whisper in heard} == {talker.id}
    assert [whisper.text for whisper in heard if whisper.kind == "model"] == ["round 0", "round 1"]


def test_who_listens_late_and_without_a_thread_hears_what_goes_on(client: Client, played: Path, tmp_path: Path) -> None:
    tree = handed_in(client, tmp_path)
    (tmp_path / "go-0").touch()
    assert next(event for event in tree.events() if event.type == "baton.handed_over")

    async def listen() -> list[str]:
        heard: list[Whisper] = []

        def beside(whisper: Whisper) -> None:
            heard.append(whisper)
            if whisper.attempt == 2 and whisper.kind == "text":
                (tmp_path / "go-1").touch()

        async for _ in tree.events(beside=beside):
            pass
        return [whisper.text for whisper in heard if whisper.attempt == 2 and whisper.kind in ("model", "text")]

    assert "".join(asyncio.run(listen())) in ("round 1so far", "round 1so ")
    assert tree.result()[0] == [{"role": "assistant", "content": "word 0"}]


def test_a_cancel_stops_an_agent_where_it_waits(client: Client, played: Path, tmp_path: Path) -> None:
    """C1."""
    tree = handed_in(client, tmp_path)
    stream = tree.events(beside=lambda whisper: whisper.kind == "model" and tree.cancel("enough"))
    assert [event.type for event in stream][-1] == "tree.failed"
    with pytest.raises(baton.BatonCancelled, match="enough"):
        tree.result()
    while not (tmp_path / "stopped").exists():
        asyncio.run(asyncio.sleep(0.01))
