"""Counts the files, lines and bytes of a directory tree: each folder is a baton, its subfolders are its children.

    baton run "digest the sources" --worker baton_actors.examples.digest:digest --context '{"path": "/usr/lib/python3.11"}'

Its numbers are those that `find`, `wc -l` and `wc -c` give for the same files.
"""

import os
import stat
from collections.abc import Iterator
from typing import Any

from baton_actors import Baton, Child, Context, Spawned, Status

#: Folders that are nobody's own work. Hidden ones (`.git`) are left out too.
SKIPPED = frozenset({"site-packages", "__pycache__"})
#: How many of the largest files are told.
LARGEST = 5
_BLOCK = 1 << 20


def digest(baton: Baton, ctx: Context) -> Spawned | dict[str, Any]:
    """Totals of the folder `context["path"]` and all below it.

    Symbolic links are not followed, and of files only regular ones count. `lines` is the number of line ends, as `wc -l` has it.
    A folder or a file that cannot be read stands in `unreadable` with the reason, and the rest is counted all the same.

    Raises:
        ValueError: the path is not absolute. OSError: the folder cannot be read.
    """
    if ctx.breakdown:
        return _sum(ctx)
    path = str(baton.context.get("path", ""))
    if not os.path.isabs(path):
        raise ValueError(f"context.path must be an absolute path, not {path!r}: a worker does not run where you are")
    own, folders = _read_folder(path, ctx)
    if not folders:
        return own
    return Spawned([Child(f"digest {folder}", {"path": folder}) for folder in folders], state=own)


def _sum(ctx: Context) -> dict[str, Any]:
    """The folder's own totals, saved before it was broken down, with those of its subfolders."""
    total = dict(ctx.state)
    largest, unreadable = list(total["largest"]), list(total["unreadable"])
    for child in ctx.children:
        if child.status is not Status.COMPLETED:
            unreadable.append({"path": child.goal.removeprefix("digest "), "error": child.error})
            continue
        for key in ("folders", "files", "lines", "bytes"):
            total[key] += child.result[key]
        largest += child.result["largest"]
        unreadable += child.result["unreadable"]
    return {**total, "largest": _top(largest), "unreadable": unreadable}


def _read_folder(path: str, ctx: Context) -> tuple[dict[str, Any], list[str]]:
    """The totals of the files in one folder, and the subfolders to go into, sorted."""
    own: dict[str, Any] = {"path": path, "folders": 1, "files": 0, "lines": 0, "bytes": 0}
    sizes: list[dict[str, Any]] = []
    unreadable: list[dict[str, Any]] = []
    folders: list[str] = []
    for entry in _entries(path):
        if ctx.cancelled:
            break
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and not entry.name.startswith("."):
                    folders.append(_storable(entry.path))
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                lines, size = _measure(entry.path)
                own["files"] += 1
                own["lines"] += lines
                own["bytes"] += size
                sizes.append({"path": _shown(entry.path), "bytes": size})
        except (OSError, ValueError) as error:
            unreadable.append({"path": _shown(entry.path), "error": str(error)})
    return {**own, "largest": _top(sizes), "unreadable": unreadable}, folders


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        yield from sorted(entries, key=lambda entry: entry.name)


def _measure(path: str) -> tuple[int, int]:
    """Line ends and bytes of a file, read in blocks: it may be larger than the memory."""
    lines = size = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
            size += len(block)
    return lines, size


def _top(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(files, key=lambda file: (-file["bytes"], file["path"]))[:LARGEST]


def _storable(path: str) -> str:
    """A path that a baton can carry: JSON text is Unicode, names of files are bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError("its name is not UTF-8") from None
    return path


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")
