"""Code that travels with a tree, the sender's side: functions by value, modules as an archive of the working directory.

A tree must outlive the job, the notebook and the folder it came from, on nodes that never saw them. What is installed
(a package in `site-packages`, the standard library, this package) is only named; the rest is taken along.
"""

import contextlib
import functools
import hashlib
import io
import os
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle

from baton_actors.baton import AGENT, PASSIVE_WORKERS
from baton_actors.capabilities.schema import hold_hints
from baton_actors.errors import InvalidInput
from baton_actors.references import check_signature, resolve

#: Bytes of all `*.py` files that are taken along, and how many folders are looked into for them.
ARCHIVE_BYTES = 10 * 1024 * 1024
ARCHIVE_FOLDERS = 5_000
_OWN_PACKAGE = Path(__file__).resolve().parents[1]
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})


class Packing:
    """Collects the code of one submission, or of one breakdown.

    Attributes:
        functions: pickled functions by hash. archive: a zip of the roots' `*.py`, if a reference needs it.

    Args:
        roots: folders whose modules are not installed where the worker runs; the working directory and the script's.
        packed: the tree has their archive already, as in a worker that breaks its task down.
    """

    def __init__(self, roots: tuple[Path, ...], *, packed: bool = False) -> None:
        self._roots = roots
        self._packed = packed
        self._known: dict[int, tuple[Callable[..., Any], str]] = {}
        self.functions: dict[str, bytes] = {}
        self.archive: bytes | None = None

    def worker(self, work: str | Callable[..., Any] | None) -> str | None:
        """The reference of a worker, after a look whether it can be called as one.

        Raises:
            InvalidInput: no such module or function, or it does not take (baton, ctx).
        """
        if work is None or (isinstance(work, str) and (work == AGENT or work in PASSIVE_WORKERS or work.startswith("code:"))):
            return work
        if isinstance(work, str):
            module, function = resolve(work)
            check_signature(function, work)
            if _is_travelling(module) and _root_of(module, self._roots) is not None:
                self._take_roots()
            return work
        if not callable(work):
            raise InvalidInput("worker", f"{work!r} is neither a name nor something that can be called")
        check_signature(work, getattr(work, "__qualname__", repr(work)))
        return self.reference(work)

    def tool(self, tool: str | Callable[..., Any]) -> str:
        """The reference of a tool; one that `module:function` names takes its module along. What it is was checked before."""
        if isinstance(tool, str) and ":" in tool and not tool.startswith("code:"):
            module, _ = resolve(tool)
            if _is_travelling(module) and _root_of(module, self._roots) is not None:
                self._take_roots()
        return tool if isinstance(tool, str) else self.reference(tool)

    def reference(self, function: Callable[..., Any]) -> str:
        """How a worker process finds a function: `module:name` if it can import it, else `code:<hash>` of its value."""
        known = self._known.get(id(function))
        if known is None:
            known = self._known[id(function)] = (function, self._reference(function))
        return known[1]

    def _reference(self, function: Callable[..., Any]) -> str:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        name = getattr(function, "__qualname__", "")
        if module is not None and module.__name__ != "__main__" and "." not in name and getattr(module, name, None) is function:
            if not _is_travelling(module):
                return f"{module.__name__}:{name}"
            if _root_of(module, self._roots) is not None:
                self._take_roots()
                return f"{module.__name__}:{name}"
        with contextlib.suppress(InvalidInput):  # too large: it may do without, and says what it misses if not
            self._take_roots()
        return self._by_value(function, module)

    def _by_value(self, function: Callable[..., Any], module: ModuleType | None) -> str:
        hold_hints(function)  # it may be a tool, whose hints become its schema
        stray = module if module is not None and module.__name__ != "__main__" and _is_travelling(module) else None
        try:
            with _pickled_by_value(stray):
                data = cloudpickle.dumps(function)
        except Exception as error:  # pickling runs foreign code, which may raise anything
            name = getattr(function, "__qualname__", repr(function))
            raise InvalidInput(
                name, f"cannot be shipped by value ({type(error).__name__}: {error}); open files and locks inside it"
            ) from None
        digest = hashlib.sha256(data).hexdigest()
        self.functions[digest] = data
        return f"code:{digest}"

    def _take_roots(self) -> None:
        if self.archive is None and not self._packed:
            self.archive = archive(self._roots)


def sender_roots() -> tuple[Path, ...]:
    """The folders from which this program imports its own modules: the working directory and that of its script."""
    roots = [Path.cwd().resolve()]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script and not _is_installed(script):
        folder = Path(script).resolve().parent
        if folder not in roots and not folder.is_relative_to(_OWN_PACKAGE):
            roots.append(folder)
    return tuple(roots)


def archive(roots: tuple[Path, ...]) -> bytes:
    """A zip of the roots' `*.py`, the same bytes for the same files: `0/…` of the first root, `1/…` of the second.

    Raises:
        InvalidInput: too large, or too many folders.
    """
    buffer = io.BytesIO()
    total = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for number, root in enumerate(roots):
            for path in _sources(root):
                data = _read(path)
                total += len(data)
                if total > ARCHIVE_BYTES:
                    raise InvalidInput("working directory", f"the *.py files below {root} exceed 10 MB; start from a smaller folder")
                packed.writestr(zipfile.ZipInfo(f"{number}/{path.relative_to(root).as_posix()}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _read(path: Path) -> bytes:
    try:
        path.name.encode()
        return path.read_bytes()
    except (OSError, UnicodeEncodeError) as error:
        raise InvalidInput("working directory", f"{str(path)!r} cannot be taken along: {error}; move it away, or start elsewhere") from None


def _sources(root: Path) -> Iterator[Path]:
    """The `*.py` files below a folder, sorted; no hidden folders, caches, environments."""
    for number, (folder, subfolders, files) in enumerate(os.walk(root)):
        if number >= ARCHIVE_FOLDERS:
            raise InvalidInput("working directory", f"more than {ARCHIVE_FOLDERS} folders below {root}; start from a smaller folder")
        here = Path(folder)
        subfolders[:] = sorted(
            name
            for name in subfolders
            if not name.startswith(".") and name not in _SKIPPED_FOLDERS and not (here / name / "pyvenv.cfg").exists()
        )
        yield from (here / name for name in sorted(files) if name.endswith(".py") and (here / name).is_file())


def _is_travelling(module: ModuleType) -> bool:
    """Whether a module must be taken along: it has a file, which belongs to no installed package."""
    file = getattr(module, "__file__", None)
    if not file or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "baton_actors":
        return False
    return file.endswith(".py") and not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    path = Path(file)
    if not _SKIPPED_FOLDERS.isdisjoint(path.parts):
        return True
    paths = sysconfig.get_paths()
    return any(path.is_relative_to(paths[key]) for key in ("stdlib", "platstdlib", "scripts"))


def _root_of(module: ModuleType, roots: tuple[Path, ...]) -> Path | None:
    """The root from which a worker can import the module by the same name, from the archive."""
    file = Path(module.__file__ or "").resolve()
    tail = Path(*module.__name__.split("."))
    return next((root for root in roots if file in (root / tail.with_suffix(".py"), root / tail / "__init__.py")), None)


@contextlib.contextmanager
def _pickled_by_value(module: ModuleType | None) -> Iterator[None]:
    """Make cloudpickle take along what it would only name, since the worker could not import it."""
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
