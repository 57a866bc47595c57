"""Code that has travelled: one process serves many trees, and each finds its own modules and nothing of another's."""

import contextlib
import hashlib
import io
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from baton_actors.errors import InvalidInput
from baton_actors.runtime import loading
from baton_actors.runtime.loading import Loader, archive_folder, importable, unpack
from baton_actors.runtime.packing import Packing, archive


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Archives are unpacked below a folder of the test; what it imports must be gone after it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    modules, path = set(sys.modules), list(sys.path)
    yield
    assert {name for name in set(sys.modules) - modules if name.startswith("same")} == set()
    assert sys.path == path


def packed(files: dict[str, str]) -> bytes:
    """An archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return buffer.getvalue()


def answer(value: str) -> str:
    return f"def run(baton, ctx):\n    return {value!r}\n"


#: Ways in which a tree may have `same:run`, or `same.inner:run`.
FORMS = {
    "file": ({"0/same.py": answer("file")}, "same:run"),
    "package": ({"0/same/__init__.py": answer("package")}, "same:run"),
    "inner": ({"0/same/__init__.py": "", "0/same/inner.py": answer("inner")}, "same.inner:run"),
    "namespace": ({"0/same/inner.py": answer("namespace")}, "same.inner:run"),
    "second root": ({"0/other.py": "", "1/same.py": answer("second root")}, "same:run"),
}


# ---------------------------------------------------------------- importing


@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("first", FORMS)
def test_two_trees_with_modules_of_the_same_name_each_find_their_own(first: str, second: str) -> None:
    for name in (first, second, first):
        files, reference = FORMS[name]
        with importable(unpack(packed(files))):
            assert Loader().function(reference)(None, None) == name


def test_the_path_and_the_modules_are_as_before_when_a_tree_has_ended() -> None:
    files, reference = FORMS["inner"]
    modules, path = dict(sys.modules), list(sys.path)
    with importable(unpack(packed(files))):
        Loader().function(reference)
        assert "same.inner" in sys.modules
        assert sys.path[0].endswith("/0")
    assert (sys.modules, sys.path) == (modules, path)


def test_the_path_and_the_modules_are_as_before_when_a_tree_has_failed() -> None:
    modules, path = dict(sys.modules), list(sys.path)
    with pytest.raises(ZeroDivisionError), importable(unpack(packed({"0/same.py": "1 / 0\n"}))):
        __import__("same")
    assert (sys.modules, sys.path) == (modules, path)


def test_modules_of_others_that_were_imported_meanwhile_stay() -> None:
    sys.modules.pop("this", None)
    with importable(unpack(packed({"0/same.py": "import sched\n"}))):
        __import__("same")
    assert "sched" in sys.modules


def test_a_module_that_cannot_be_looked_at_does_not_spoil_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("not now")

    monkeypatch.setitem(sys.modules, "strange_lazy_module", Lazy())
    with importable(unpack(packed({"0/same.py": answer("x")}))):
        __import__("same")


def test_the_modules_of_a_tree_come_before_others_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "same.py").write_text(answer("another's"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with importable(unpack(packed({"0/same.py": answer("own"), "1/same.py": answer("of the second root")}))):
        assert Loader().function("same:run")(None, None) == "own"
    monkeypatch.undo()


def test_a_tree_without_an_archive_imports_what_is_there() -> None:
    with importable(None):
        assert Loader().function("zipfile:is_zipfile") is zipfile.is_zipfile


# ---------------------------------------------------------------- functions


def test_a_function_by_value_is_built_once() -> None:
    number = 41
    data = cloudpickle.dumps(lambda baton, ctx: number + 1)
    loader = Loader()
    loader.add({"a" * 64: data})
    function = loader.function("code:" + "a" * 64)
    assert function(None, None) == 42
    assert loader.function("code:" + "a" * 64) is function


def test_functions_that_come_later_are_found() -> None:
    loader = Loader()
    with pytest.raises(KeyError):
        loader.function("code:" + "a" * 64)
    loader.add({"a" * 64: cloudpickle.dumps(len)})
    assert loader.function("code:" + "a" * 64) is len


@pytest.mark.parametrize("reference", ["same_nowhere:run", "zipfile:nothing"])
def test_a_reference_that_leads_nowhere_is_said_in_words(reference: str) -> None:
    with pytest.raises(InvalidInput):
        Loader().function(reference)


def test_a_function_sent_by_value_finds_the_modules_that_were_taken_along_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "same.py").write_text("def number():\n    return 42\n")
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def run(baton, ctx):\n    import same\n    return same.number()\n", space)
    packing = Packing((source,))
    reference = packing.reference(space["run"])
    assert packing.archive is not None
    loader = Loader()
    loader.add(packing.functions)
    with importable(unpack(packing.archive)):
        assert loader.function(reference)(None, None) == 42


# ---------------------------------------------------------------- unpacking


def test_an_archive_is_unpacked_once_into_a_folder_of_its_hash_that_is_ours_alone() -> None:
    data = packed({"0/same.py": answer("x")})
    folder = unpack(data)
    assert folder == archive_folder(hashlib.sha256(data).hexdigest())
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    (folder / "0" / "same.py").write_text("# still here\n")
    assert unpack(data) == folder
    assert (folder / "0" / "same.py").read_text() == "# still here\n"


def test_an_archive_of_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    texts = {"a.py": "# naïve 名前\n", "deep/er/b.py": "", "deep/__init__.py": "x = 1\n"}
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    folder = unpack(archive((source,)))
    assert {path.relative_to(folder / "0").as_posix(): path.read_text() for path in folder.rglob("*.py")} == texts


def test_processes_that_unpack_at_once_all_find_the_whole_archive() -> None:
    data = packed({f"0/same{number}.py": answer(str(number)) for number in range(50)})
    found: list[int] = []
    gate = threading.Barrier(8)

    def run() -> None:
        gate.wait()
        found.append(len(list(unpack(data).rglob("*.py"))))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [50] * 8


def test_one_that_comes_second_takes_what_the_first_has_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"0/same.py": answer("x")})
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        with contextlib.suppress(OSError):
            (target / "0").mkdir(parents=True)
            (target / "0" / "same.py").write_text(answer("the first"))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with importable(unpack(data)):
        assert Loader().function("same:run")(None, None) == "the first"


def test_a_half_unpacked_archive_of_a_process_that_died_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"0/same.py": answer("x")})

    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(zipfile.ZipFile, "extractall", dying)
        with pytest.raises(KeyboardInterrupt):
            unpack(data)
    with importable(unpack(data)):
        assert Loader().function("same:run")(None, None) == "x"


def test_a_folder_of_another_user_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"0/same.py": answer("x")})
    mine = Path(tempfile.gettempdir()).stat().st_uid
    monkeypatch.setattr(loading.os, "getuid", lambda: mine + 1)
    with pytest.raises(InvalidInput, match="belongs to another user, so code in it cannot be trusted; remove it, or set TMPDIR"):
        unpack(data)


def test_what_another_user_has_put_there_before_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the hash exists already: it is looked at no less."""
    data = packed({"0/same.py": answer("ours")})
    mine = Path(tempfile.gettempdir()).stat().st_uid
    monkeypatch.setattr(loading.os, "getuid", lambda: mine + 1)
    planted = Path(tempfile.gettempdir()) / f"baton-code-{mine + 1}" / hashlib.sha256(data).hexdigest() / "0"
    planted.mkdir(parents=True)
    (planted / "same.py").write_text(answer("theirs"))
    with pytest.raises(InvalidInput, match="belongs to another user"):
        unpack(data)


def test_one_that_comes_second_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"0/same.py": answer("x")})
    target = archive_folder(hashlib.sha256(data).hexdigest())
    rename = Path.rename

    def late(self: Path, there: Path) -> Path:
        (there / "0").mkdir(parents=True)
        return rename(self, there)

    monkeypatch.setattr(Path, "rename", late)
    unpack(data)
    assert list(target.parent.iterdir()) == [target]
