"""What is wrong with an agent's model or tools is one line and an exit code, before Ray is started."""

import sys
from pathlib import Path

import pytest

from baton_actors.cli.app import execute
from baton_actors.testing import FakeChatServer, ScriptedModel


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BATON_MODEL", "BATON_LOCAL_GGUF", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # no cluster was started here
    monkeypatch.setenv("BATON_DATABASE_URL", f"sqlite:///{tmp_path / 'baton.db'}")
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code of a run that does not begin, and its one line."""
    code = execute(["run", "Go", *options])
    out, err = capsys.readouterr()
    assert out == ""
    [line] = [line for line in err.splitlines() if not line.startswith("asking ")]
    return code, line


def test_a_name_without_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = refused(capsys, "--model", "gpt-5")
    assert (code, line.partition(";")[0]) == (2, "error: model: 'gpt-5' needs OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own")


def test_no_model_and_no_local_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    code, line = refused(capsys)
    assert code == 2
    assert "OPENAI_API_KEY" in line
    assert "pip install 'baton_actors[local]'" in line


def test_an_address_where_nobody_answers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    code, line = refused(capsys)
    assert code == 5
    assert line.startswith("error: http://127.0.0.1:9/v1: no model answers there")


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:11434")
    assert refused(capsys) == (2, "error: OPENAI_BASE_URL: 'localhost:11434' is no address; give http://HOST:PORT/v1")


def test_a_key_that_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong-key-of-mine")
    with ScriptedModel() as model, FakeChatServer(model, key="right") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        code, line = refused(capsys)
    assert code == 5
    assert "refuses OPENAI_API_KEY" in line


def test_a_model_that_the_server_does_not_have(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel() as model, FakeChatServer(model, listed=["qwen3", "llama4"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        code, line = refused(capsys, "--model", "qwen33")
        assert code == 2
        assert line.endswith("has no model 'qwen33'; did you mean qwen3?")
        code, line = refused(capsys)
        assert code == 2
        assert line.endswith("has 2 models; choose with --model or BATON_MODEL: qwen3, llama4")


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (["raed_file"], "did you mean 'read_file'?"),
        (["mine:nothing"], "has no 'nothing'"),
        (["nowhere:f"], "no module 'nowhere'"),
        (["mine:odd"], "'odd'"),
        (["mine:add", "other:add"], "are both called 'add'"),
        (["mine:spawn_task"], "a name of the agent's own"),
    ],
)
def test_tools_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tools: list[str], words: str
) -> None:
    source = "class Thing: pass\ndef odd(x: Thing) -> str: ...\ndef add(a: int) -> int: ...\ndef spawn_task() -> None: ...\n"
    for name in ("mine", "other"):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, line = refused(capsys, *(option for tool in tools for option in ("--tool", tool)))
    assert code == 2
    assert words in line


@pytest.mark.parametrize(
    ("name", "value"), [("BATON_MODEL_DIALECT", "words"), ("BATON_MODEL_TIMEOUT", "-1"), ("BATON_MODEL_TIMEOUT", "soon")]
)
def test_a_setting_that_cannot_be_used(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    code, line = refused(capsys)
    assert code == 2
    assert line.startswith(f"error: {name}: ")


def test_a_file_of_weights_that_is_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("no weights")
    monkeypatch.setenv("BATON_LOCAL_GGUF", str(tmp_path / "model.gguf"))
    code, line = refused(capsys)
    assert code == 2
    assert "is no GGUF file" in line
