"""The example workers, run in this process as the runtime would: the digest agrees with `find` and `wc`."""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton_actors import Baton, Child, ChildResult, Context, Spawned, Status
from baton_actors.examples import arithmetic
from baton_actors.examples.digest import LARGEST, digest

Worker = Callable[[Baton, Context], Any]


def run(worker: Worker, context: dict[str, Any], *, before: Callable[[Child], None] = lambda child: None) -> Any:
    """The result of a worker; its children are run in turn, and `before` is called before each."""
    baton = Baton(id="bt_1", root_id="bt_1", goal="test", context=context)
    children: list[ChildResult] = []
    state: Any = None
    for breakdown in range(10):
        outcome = worker(
            baton, Context(baton, children=children, breakdown=breakdown, state=state, report_checkpoint=lambda state, data: None)
        )
        if not isinstance(outcome, Spawned):
            return outcome
        children, state = [result(child, worker, before) for child in outcome.children], outcome.state
    pytest.fail("it goes on breaking down")


def result(child: Child, parent: Worker, before: Callable[[Child], None]) -> ChildResult:
    before(child)
    worker = child.worker if callable(child.worker) else parent
    try:
        value = run(worker, dict(child.context or {}), before=before)
    except (OSError, ValueError) as error:
        return ChildResult("bt_2", child.goal, Status.FAILED, None, str(error), None)
    return ChildResult("bt_2", child.goal, Status.COMPLETED, value, None, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small tree with what is easily counted wrong."""
    for path, data in {
        "top.txt": b"one\ntwo\nno end",
        "a/b/c/deep.bin": bytes(range(256)) * 9_000,
        "a/empty": b"",
        "a/.hidden file": b"counts\n",
        "a/漢字 🙂.txt": "é\n".encode(),
        ".git/config": b"skipped\n",
        "site-packages/x.py": b"skipped\n",
        "a/__pycache__/x.pyc": b"skipped\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "dangling").symlink_to("nowhere")
    (tmp_path / "a" / "link.txt").symlink_to(tmp_path / "top.txt")
    os.mkfifo(tmp_path / "a" / "pipe")
    return tmp_path


def found(folder: Path) -> tuple[int, int, int]:
    """Files, line ends and bytes as `find`, `xargs` and `cat` see them."""
    skipped = ["(", "-name", ".?*", "-o", "-name", "site-packages", "-o", "-name", "__pycache__", ")", "-type", "d", "-prune"]
    names = subprocess.run(["find", folder, *skipped, "-o", "-type", "f", "-print0"], check=True, capture_output=True).stdout
    data = subprocess.run(["xargs", "-0", "cat"], input=names, check=True, capture_output=True).stdout
    return names.count(b"\0"), data.count(b"\n"), len(data)


def test_the_digest_agrees_with_find_and_cat(folder: Path) -> None:
    total = run(digest, {"path": str(folder)})
    assert (total["files"], total["lines"], total["bytes"]) == found(folder)
    assert (total["path"], total["folders"], total["unreadable"]) == (str(folder), 4, [])


def test_the_largest_files_are_told_from_all_levels(folder: Path) -> None:
    largest = run(digest, {"path": str(folder)})["largest"]
    assert [Path(file["path"]).name for file in largest][:2] == ["deep.bin", "top.txt"]
    assert [file["bytes"] for file in largest] == sorted((file["bytes"] for file in largest), reverse=True)
    assert len(largest) <= LARGEST


def test_a_folder_that_vanishes_is_told_and_the_rest_is_counted(folder: Path) -> None:
    def vanish(child: Child) -> None:
        if str(child.goal).endswith("/c"):
            (folder / "a/b/c/deep.bin").unlink()
            (folder / "a/b/c").rmdir()

    total = run(digest, {"path": str(folder)}, before=vanish)
    assert [entry["path"] for entry in total["unreadable"]] == [str(folder / "a/b/c")]
    assert "No such file" in total["unreadable"][0]["error"]
    assert (total["files"], total["folders"]) == (4, 3)


def test_a_folder_whose_name_is_not_utf8_is_told(folder: Path) -> None:
    os.mkdir(os.fsencode(folder) + b"/\xff")
    total = run(digest, {"path": str(folder)})
    assert total["unreadable"] == [{"path": f"{folder}/\\xff", "error": "its name is not UTF-8"}]


def test_a_relative_path_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"context\.path must be an absolute path, not 'src'"):
        run(digest, {"path": "src"})


def test_a_root_that_is_not_there_fails() -> None:
    with pytest.raises(FileNotFoundError):
        run(digest, {"path": "/nowhere/at/all"})


def test_only_regular_files_are_opened(folder: Path) -> None:
    assert stat.S_ISFIFO((folder / "a/pipe").stat().st_mode)
    assert run(digest, {"path": str(folder / "a")})["files"] == 4


@pytest.mark.parametrize(("start", "stop", "leaf"), [(0, 1000, 100), (0, 0, 100), (-7, 8, 1), (0, 5, 1), (3, 104, 100)])
def test_the_sum_of_a_range_is_that_of_python(start: int, stop: int, leaf: int) -> None:
    assert run(arithmetic.sum_range, {"start": start, "stop": stop, "leaf": leaf}) == sum(range(start, stop))


def test_a_chain_counts_its_batons() -> None:
    assert run(arithmetic.chain, {"levels": 20}) == 21


def test_an_empty_breakdown_keeps_its_state() -> None:
    assert run(arithmetic.empty, {}) == {"breakdown": 1, "children": 0, "state": "kept"}


def test_three_breakdowns_bring_six_squares() -> None:
    assert run(arithmetic.thrice, {}) == [1, 4, 9, 16, 25, 36]
