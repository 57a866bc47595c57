"""What the README shows of Python runs as it stands."""

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from .conftest import end_actors

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def block(with_text: str) -> str:
    [found] = [each for each in BLOCKS if with_text in each]
    return str(found)


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Any:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("BATON_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("BATON_NAMESPACE", namespace)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield
    end_actors(namespace)


def test_a_worker_is_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("def total"), {"__name__": "readme"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "499500"
    assert printed[0].startswith("1 baton.created add the numbers")


def test_a_tool_is_a_function_and_agents_are_tested_without_a_model() -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(block("async def book").partition("with baton.connect")[0], names)
    exec(block("FakeChatServer"), names)
    assert names["server"].refused == []
    assert [request.body["model"] for request in names["server"].requests] == ["scripted-1"] * 2


def test_each_block_of_python_is_one_that_is_run_here() -> None:
    assert len(BLOCKS) == 3
