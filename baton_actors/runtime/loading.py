"""Code that travels with a tree, the worker's side: an archive on the import path, functions from their bytes.

One worker process serves many trees one after the other, whose modules may have the same names. So a tree's modules are
imported from a folder of its own, and forgotten when the process turns to another tree.
"""

import contextlib
import hashlib
import importlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ray import cloudpickle

from baton_actors.errors import InvalidInput
from baton_actors.references import resolve


class Loader:
    """Finds the functions of one tree by their references.

    Args:
        functions: pickled functions by hash; more may be added while the run lasts.
    """

    def __init__(self) -> None:
        self._pickled: dict[str, bytes] = {}
        self._loaded: dict[str, Callable[..., Any]] = {}

    def add(self, functions: dict[str, bytes]) -> None:
        """Functions that were sent later."""
        self._pickled.update(functions)

    def function(self, reference: str) -> Callable[..., Any]:
        """The function that `module:name` or `code:<hash>` names.

        Raises:
            InvalidInput: there is no such function. Whatever its code raises when it is loaded passes through.
        """
        function = self._loaded.get(reference)
        if function is None:
            kind, _, digest = reference.partition(":")
            function = cloudpickle.loads(self._pickled[digest]) if kind == "code" else resolve(reference)[1]
            self._loaded[reference] = function
        return function


def archive_folder(archive_hash: str) -> Path:
    """Where the archive of that hash lies unpacked on this node, or will; in a folder for each user, which is made.

    Raises:
        InvalidInput: that folder is another user's.
    """
    ours = Path(tempfile.gettempdir()) / f"baton-code-{os.getuid()}"
    ours.mkdir(mode=0o700, exist_ok=True)
    if ours.lstat().st_uid != os.getuid():
        raise InvalidInput(str(ours), "belongs to another user, so code in it cannot be trusted; remove it, or set TMPDIR")
    return ours / archive_hash


def unpack(archive: bytes) -> Path:
    """Unpack an archive, once on each node; several processes may do so at once."""
    target = archive_folder(hashlib.sha256(archive).hexdigest())
    if target.is_dir():
        return target
    partial = Path(tempfile.mkdtemp(dir=target.parent))
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(partial)
    try:
        partial.rename(target)
    except OSError:  # another process was first
        shutil.rmtree(partial, ignore_errors=True)
    return target


@contextlib.contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Modules of an unpacked archive come first in this process while the block lasts, and are forgotten after it."""
    if folder is None:
        yield
        return
    roots = [str(root) for root in sorted(folder.iterdir())]
    sys.path[:0] = roots
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if any(place.startswith(str(folder) + os.sep) for place in _places(module)):
                del sys.modules[name]
        sys.path[:] = [entry for entry in sys.path if entry not in roots]


def _places(module: Any) -> list[str]:
    """Where a module comes from; a package without `__init__.py` has a path, and no file."""
    try:
        return [getattr(module, "__file__", None) or "", *(getattr(module, "__path__", None) or ())]
    except Exception:  # lazy modules of foreign packages may raise anything when they are looked at
        return []
