"""Code that travels: what is only named, what is taken along, and how it is said that something cannot travel."""

import io
import os
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from baton_actors import references
from baton_actors.errors import InvalidInput
from baton_actors.examples import arithmetic
from baton_actors.runtime import packing
from baton_actors.runtime.packing import Packing, archive, sender_roots

WORK = "def run(baton, ctx):\n    return 1\n\n\ndef alone():\n    return 2\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of its own, as a user's."""
    before = set(sys.modules)
    (tmp_path / "work_here.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("work_", "pack_")):
            del sys.modules[name]


def imported(name: str) -> Any:
    return __import__(name, fromlist=["_"])


def names(data: bytes | None) -> list[str]:
    assert data is not None
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        return packed.namelist()


def built(code: str, module: str = "__main__") -> Callable[..., Any]:
    """A function as it would stand in a script or a notebook cell."""
    space: dict[str, Any] = {"__name__": module}
    exec(code, space)
    function: Callable[..., Any] = space["run"]
    return function


# ---------------------------------------------------------------- by reference


@pytest.mark.parametrize("work", [None, "agent", "human", "external", "code:" + "0" * 64])
def test_names_that_need_no_code_are_left_as_they_are(work: str | None) -> None:
    packed = Packing(())
    assert packed.worker(work) == work
    assert (packed.functions, packed.archive) == ({}, None)


def test_what_is_installed_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(WORK)
    packed = Packing((tmp_path,))
    assert packed.reference(zipfile.is_zipfile) == "zipfile:is_zipfile"
    assert packed.reference(pytest.approx).partition(":")[0].startswith("_pytest")
    assert packed.reference(arithmetic.square) == "baton_actors.examples.arithmetic:square"
    assert (packed.functions, packed.archive) == ({}, None)


def test_a_module_of_the_working_directory_is_named_and_the_directory_taken_along(place: Path) -> None:
    packed = Packing((place,))
    assert packed.worker("work_here:run") == "work_here:run"
    assert names(packed.archive) == ["0/work_here.py"]
    again = Packing((place,))
    assert again.worker(imported("work_here").run) == "work_here:run"
    assert (again.functions, again.archive) == ({}, packed.archive)


def test_a_module_in_a_package_of_the_working_directory_is_named(place: Path) -> None:
    (place / "pack_here").mkdir()
    (place / "pack_here" / "__init__.py").write_text("")
    (place / "pack_here" / "inner.py").write_text(WORK)
    packed = Packing((place,))
    assert packed.worker(imported("pack_here.inner").run) == "pack_here.inner:run"
    assert names(packed.archive) == ["0/work_here.py", "0/pack_here/__init__.py", "0/pack_here/inner.py"]


def test_a_worker_that_breaks_down_names_what_its_tree_has_already(place: Path) -> None:
    packed = Packing((place,), packed=True)
    assert packed.reference(imported("work_here").run) == "work_here:run"
    assert packed.archive is None


# ---------------------------------------------------------------- by value


def test_a_function_of_a_script_or_a_cell_travels_by_value(place: Path) -> None:
    packed = Packing((place,))
    reference = packed.worker(built("def run(baton, ctx):\n    return 41 + 1\n"))
    assert reference is not None
    kind, _, digest = reference.partition(":")
    assert kind == "code"
    assert list(packed.functions) == [digest]
    assert cloudpickle.loads(packed.functions[digest])(None, None) == 42
    assert names(packed.archive) == ["0/work_here.py"], "it may import what lies beside it"


def test_a_function_is_pickled_once_and_two_of_them_have_two_names(place: Path) -> None:
    packed = Packing((place,))
    one, other = built("def run(baton, ctx):\n    return 1\n"), built("def run(baton, ctx):\n    return 2\n")
    assert packed.reference(one) == packed.reference(one)
    assert packed.reference(one) != packed.reference(other)
    assert len(packed.functions) == 2


def test_closures_lambdas_and_inner_functions_travel_by_value(place: Path) -> None:
    packed = Packing((place,))
    number = 40

    def inner(baton: Any, ctx: Any) -> int:
        return number + 2

    for work in (inner, lambda baton, ctx: number + 2):
        reference = packed.worker(work)
        assert reference is not None
        assert cloudpickle.loads(packed.functions[reference.partition(":")[2]])(None, None) == 42


def test_a_function_of_a_module_that_the_worker_cannot_import_travels_with_what_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PYTHONPATH, but neither installed nor in a folder that is taken along."""
    stray = tmp_path / "elsewhere"
    stray.mkdir()
    (stray / "work_stray.py").write_text("def half():\n    return 21\n\n\ndef run(baton, ctx):\n    return 2 * half()\n")
    monkeypatch.syspath_prepend(str(stray))
    module = imported("work_stray")
    packed = Packing((tmp_path / "empty",))
    (tmp_path / "empty").mkdir()
    try:
        reference = packed.reference(module.run)
    finally:
        del sys.modules["work_stray"]
    monkeypatch.undo()
    assert reference.startswith("code:")
    assert cloudpickle.loads(packed.functions[reference.partition(":")[2]])(None, None) == 42
    assert "work_stray" not in cloudpickle.list_registry_pickle_by_value()


def test_a_function_that_was_replaced_in_its_module_travels_by_value(place: Path) -> None:
    """Its name would lead to another one: a decorated function, a cell that was run again."""
    module = imported("work_here")
    old = module.run
    module.run = lambda baton, ctx: 2
    assert Packing((place,)).reference(old).startswith("code:")


def test_a_working_directory_that_is_too_large_is_left_behind_by_what_travels_by_value(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "ARCHIVE_BYTES", 10)
    packed = Packing((place,))
    assert str(packed.worker(built("def run(baton, ctx):\n    return 1\n"))).startswith("code:")
    assert packed.archive is None
    with pytest.raises(InvalidInput, match=r"exceed 10 MB; start from a smaller folder"):
        packed.worker("work_here:run")


# ---------------------------------------------------------------- what cannot be used


class Thing:
    def __call__(self, baton: Any, ctx: Any) -> int:
        return 3


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def run():\n    pass\n", "run"),
        ("def run(baton):\n    pass\n", "run"),
        ("def run(baton, ctx, more):\n    pass\n", "run"),
        ("def run(*, baton, ctx):\n    pass\n", "run"),
    ],
)
def test_a_function_that_does_not_take_baton_and_ctx_is_refused(code: str, name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{name}'? must take two arguments, \(baton, ctx\)"):
        Packing(()).worker(built(code))


@pytest.mark.parametrize(
    "code", ["def run(*all):\n    pass\n", "def run(baton, ctx, more=1):\n    pass\n", "async def run(baton, ctx, **rest):\n    pass\n"]
)
def test_a_function_that_can_be_called_with_baton_and_ctx_is_taken(code: str, place: Path) -> None:
    assert str(Packing((place,)).worker(built(code))).startswith("code:")


def test_an_object_that_can_be_called_is_a_worker(place: Path) -> None:
    packed = Packing((place,))
    reference = str(packed.worker(Thing()))
    assert cloudpickle.loads(packed.functions[reference.partition(":")[2]])(None, None) == 3


@pytest.mark.parametrize("work", [42, object(), ["work:run"]])
def test_what_is_no_function_is_refused(work: Any) -> None:
    with pytest.raises(InvalidInput, match="neither a name nor something that can be called"):
        Packing(()).worker(work)


@pytest.mark.parametrize("hold", ["threading.Lock()", "open(__import__('os').devnull, 'w')"])
def test_a_function_that_holds_what_cannot_be_pickled_is_refused_with_the_reason(hold: str, place: Path) -> None:
    """D2."""
    space: dict[str, Any] = {"__name__": "__main__", "threading": threading}
    exec(f"held = {hold}\ndef run(baton, ctx):\n    return held\n", space)
    with pytest.raises(InvalidInput, match=r"run: cannot be shipped by value \(\w+: .*\); open files and locks inside it"):
        Packing((place,)).worker(space["run"])


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nonsense", r"'nonsense' is no worker; give 'module:function'"),
        ("work_nowhere:run", r"no module 'work_nowhere', neither installed nor in "),
        ("work_here.inner:run", r"no module 'work_here.inner', neither installed nor in |importing 'work_here.inner' failed"),
        ("work_here:walk", r"module 'work_here' has no 'walk'"),
        ("work_here:", r"module 'work_here' has no ''"),
        (":run", r"importing '' failed"),
        ("work_here:alone", r"work_here:alone'? must take two arguments"),
        ("work_broken:run", r"importing 'work_broken' failed: ZeroDivisionError: "),
        ("work_needy:run", r"importing 'work_needy' failed: No module named 'work_missing'"),
        ("work_leaving:run", r"importing 'work_leaving' failed: SystemExit: 3"),
        ("work_value:run", r"'work_value:run' is .*int, not a function of \(baton, ctx\)"),
    ],
)
def test_a_reference_that_leads_nowhere_says_which_part_there_is_not(place: Path, reference: str, words: str) -> None:
    (place / "work_broken.py").write_text("1 / 0\n")
    (place / "work_needy.py").write_text("import work_missing\n")
    (place / "work_leaving.py").write_text("raise SystemExit(3)\n")
    (place / "work_value.py").write_text("run = 3\n")
    with pytest.raises(InvalidInput, match=words):
        Packing((place,)).worker(reference)


def test_a_builtin_without_a_signature_is_not_refused() -> None:
    references.check_signature(dict.update, "update")


# ---------------------------------------------------------------- the archive


def test_an_archive_holds_python_sources_of_every_root_and_nothing_of_environments(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    kept = ["a.py", "deep/er/b.py", "namespace/c.py"]
    left = [
        ".hidden/x.py",
        "venv/lib/x.py",
        "node_modules/x.py",
        "__pycache__/x.py",
        "lib/site-packages/x.py",
        "lib/dist-packages/x.py",
        "data.txt",
        "a.pyc",
    ]
    for name in [*kept, *left, "venv/pyvenv.cfg"]:
        (first / name).parent.mkdir(parents=True, exist_ok=True)
        (first / name).write_text("# text\n")
    second.mkdir()
    (second / "d.py").write_text("# text\n")
    (second / "loop").symlink_to(second)
    (second / "gone.py").symlink_to(second / "nowhere")
    (second / "folder.py").mkdir()
    assert names(archive((first, second))) == [*(f"0/{name}" for name in kept), "1/d.py"]


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    made = []
    for name, order in (("first", ["b.py", "a.py", "z/c.py", "d/e.py"]), ("second", ["d/e.py", "z/c.py", "a.py", "b.py"])):
        for file in order:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {file}\n")
            path.chmod(0o600 if name == "first" else 0o755)
        made.append(archive((tmp_path / name,)))
    assert made[0] == made[1]
    (tmp_path / "second" / "a.py").write_text("# another\n")
    assert archive((tmp_path / "second",)) != made[0]


def test_an_archive_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3."""
    (tmp_path / "a.py").write_bytes(b"#" * (10 * 1024 * 1024))
    assert len(archive((tmp_path,))) < 100_000, "the limit is exact, and counts what is packed, not the packed"
    (tmp_path / "b.py").write_bytes(b"#")
    with pytest.raises(InvalidInput, match=f"working directory: the .*py files below {tmp_path} exceed 10 MB"):
        archive((tmp_path,))


def test_a_root_of_too_many_folders_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ARCHIVE_FOLDERS", 5)
    for number in range(10):
        (tmp_path / f"folder{number}").mkdir()
    with pytest.raises(InvalidInput, match="more than 5 folders below"):
        archive((tmp_path,))


def test_the_roots_are_the_working_directory_and_that_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    for file, expected in (
        (str(there / "script.py"), (here, there)),
        (str(here / "script.py"), (here,)),
        (None, (here,)),
        (pytest.__file__, (here,)),
        (str(Path(arithmetic.__file__)), (here,)),
    ):
        main = types.ModuleType("__main__")
        if file is not None:
            main.__file__ = file
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert sender_roots() == tuple(path.resolve() for path in expected)


def test_a_module_beside_the_script_is_named_and_found_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (there / "work_there.py").write_text(WORK)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(there))
    packed = Packing((here, there))
    try:
        assert packed.worker("work_there:run") == "work_there:run"
    finally:
        sys.modules.pop("work_there", None)
    assert names(packed.archive) == ["1/work_there.py"]


def test_a_file_whose_name_is_no_text_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("")
    with pytest.raises(InvalidInput):
        archive((tmp_path,))


def test_a_file_that_goes_while_it_is_packed_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")

    def gone(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", gone)
    with pytest.raises(InvalidInput):
        archive((tmp_path,))
