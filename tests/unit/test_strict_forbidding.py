"""Where model calls are forbidden, none leaves the machine; and importing the test models loads nothing heavy."""

import os
import subprocess
import sys

import pytest

from baton_actors.agent.forbidding import VARIABLE, check_address, model_calls_forbidden
from baton_actors.errors import ModelUnusable
from baton_actors.testing import forbid_model_calls
from tests.unit.test_public_names import loaded_by

HERE = [
    "http://127.0.0.1:8080/v1",
    "http://localhost/v1",
    "http://LOCALHOST:1/v1",
    "http://[::1]:8080/v1",
    "http://127.9.9.9",
    "http://[::ffff:127.0.0.1]/",
]
ELSEWHERE = [
    "https://api.openai.com/v1",
    "http://10.0.0.5:8000/v1",
    "http://0.0.0.0:8000/v1",
    "http://localhost.example.com/v1",
    "http://127.0.0.1@example.com/v1",
    "http://127.0.0.1.example.com/v1",
    "http://[::1",
    "http:///v1",
    "",
]


@pytest.fixture(autouse=True)
def _not_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize("address", HERE + ELSEWHERE)
def test_every_address_may_be_called_unless_it_is_forbidden(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", HERE)
def test_models_on_this_machine_may_be_called_even_then(address: str) -> None:
    with forbid_model_calls():
        check_address(address)


@pytest.mark.parametrize("address", ELSEWHERE)
def test_models_elsewhere_may_not_be_called_then(address: str) -> None:
    with forbid_model_calls(), pytest.raises(ModelUnusable, match="model calls are forbidden here"):
        check_address(address)


def test_the_message_names_the_address_without_its_password() -> None:
    with forbid_model_calls(), pytest.raises(ModelUnusable) as caught:
        check_address("https://me:secret@example.com/v1")
    assert "example.com/v1: model calls are forbidden" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("before", [None, "", "0", "1"])
def test_what_held_before_holds_after(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    with forbid_model_calls():
        assert model_calls_forbidden()
    assert os.environ.get(VARIABLE) == before
    assert model_calls_forbidden() == (before == "1")


def test_called_by_itself_it_holds_for_processes_that_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")  # put back at the end of this test
    forbid_model_calls()
    code = "from baton_actors.agent.forbidding import model_calls_forbidden; print(model_calls_forbidden())"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "True\n"


def test_the_test_models_load_nothing_heavy() -> None:
    assert loaded_by("import baton_actors.testing as testing; testing.FakeChatServer, testing.ScriptedModel") == []
