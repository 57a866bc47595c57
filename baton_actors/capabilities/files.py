"""Files that a task may read: only what its context names, whatever a model asks for.

Paths are compared after symbolic links and `..` are resolved, so neither leads out.
"""

import mimetypes
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from baton_actors.errors import InvalidInput

#: The context's keys, at its top level, whose texts (or lists of texts) are paths that may be read.
PATH_KEYS = ("file", "files", "path", "paths", "folder", "folders")
#: A larger file is not read: counting its characters alone would take seconds.
MAX_FILE_BYTES = 100 * 1024 * 1024
#: Entries of a folder that are listed, and looked at at all.
MAX_ENTRIES = 300
_MOST_LOOKED_AT = 100_000
_BLOCK_CHARACTERS = 1 << 20
_SAMPLE_BYTES = 8_192
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
#: Bytes that no text has, and the share of them above which a file is not taken for text in some old encoding.
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\b\x1b")
_MOST_CONTROLS = 0.02


def granted_paths(context: Mapping[str, Any], folder: Path | None) -> tuple[Path, ...]:
    """The files and folders that a context lets be read, resolved; a folder stands for all below it.

    Relative paths are relative to `folder`; without one they grant nothing, as a worker stands anywhere.
    """
    return tuple(dict.fromkeys(path for _, path in _named_paths(context, folder)))


def ungranted(context: Mapping[str, Any], parent_context: Mapping[str, Any], folder: Path | None) -> str | None:
    """The first path that a child's context names and its parent's does not grant; None if there is none."""
    granted = granted_paths(parent_context, folder)
    return next((text for text, path in _named_paths(context, folder) if not _lies_in(path, granted)), None)


def permitted(path: str, context: Mapping[str, Any], folder: Path | None) -> Path:
    """The resolved path of something that may be read.

    Raises:
        InvalidInput: nothing in the context grants it; says what is granted.
    """
    granted = granted_paths(context, folder)
    if not granted:
        raise InvalidInput("path", f"no file may be read: the task's context names none (under {', '.join(PATH_KEYS)})")
    resolved = _resolved(path, folder)
    if resolved is None or not _lies_in(resolved, granted):
        allowed = ", ".join(map(str, granted[:10])) + (", …" if len(granted) > 10 else "")
        raise InvalidInput("path", f"{path!r} may not be read; allowed: {allowed}")
    return resolved


def text_of(path: Path, offset: int, limit: int) -> tuple[str, int]:
    """At most `limit` characters of a text file from character `offset`, and how many characters it has.

    UTF-8, or what the byte order mark says; what is neither is read as Windows-1252. Line ends become `\\n`.

    Raises:
        InvalidInput: no such file, not a regular file, too large, or no text.
    """
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise InvalidInput("path", f"{path} is a folder; list it")
        if not stat.S_ISREG(about.st_mode):  # reading a pipe or a device may never end
            raise InvalidInput("path", f"{path} is no regular file; it cannot be read")
        if about.st_size > MAX_FILE_BYTES:
            raise InvalidInput("path", f"{path} has {about.st_size:,} bytes, the limit is {MAX_FILE_BYTES:,}; give a part of it")
        sample = _sample(path)
        marked = next((encoding for mark, encoding in _MARKS if sample.startswith(mark)), None)
        if marked is None and b"\x00" in sample:
            raise _binary(path, about.st_size)
        try:
            return _window(path, marked or "utf-8", "replace" if marked else "strict", offset, limit)
        except UnicodeDecodeError:
            if sum(byte in _CONTROLS for byte in sample) > _MOST_CONTROLS * len(sample):
                raise _binary(path, about.st_size) from None
            return _window(path, "cp1252", "replace", offset, limit)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("path", f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def listing(path: Path) -> str:
    """A folder's entries by name, a line each: folders with a `/`, files with their size, links as such.

    Raises:
        InvalidInput: no such folder, or it may not be read.
    """
    try:
        with os.scandir(path) as entries:
            looked_at = sorted((entry for entry, _ in zip(entries, range(_MOST_LOOKED_AT), strict=False)), key=lambda entry: entry.name)
        lines = [_line(entry) for entry in looked_at[:MAX_ENTRIES]]
    except OSError as error:
        raise InvalidInput("path", f"{path} cannot be listed: {error.strerror}") from None
    if (more := len(looked_at) - MAX_ENTRIES) > 0:
        lines.append(f"({more:,} more{' at least' if len(looked_at) == _MOST_LOOKED_AT else ''})")
    return "\n".join(lines) or "(empty)"


def _line(entry: os.DirEntry[str]) -> str:
    name = entry.name if entry.name.isprintable() else repr(entry.name)  # a line end in a name must not look like an entry
    if entry.is_symlink():
        return f"{name} (link)"
    if entry.is_dir(follow_symlinks=False):
        return f"{name}/"
    about = entry.stat(follow_symlinks=False)
    return f"{name} {about.st_size:,} bytes" if stat.S_ISREG(about.st_mode) else f"{name} (neither file nor folder)"


def _named_paths(context: Mapping[str, Any], folder: Path | None) -> Iterator[tuple[str, Path]]:
    """The paths that a context names, as written and resolved."""
    for key in PATH_KEYS:
        value = context.get(key)
        for text in [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []:
            if isinstance(text, str) and text.strip() and (path := _resolved(text, folder)):
                yield text, path


def _resolved(path: str, folder: Path | None) -> Path | None:
    """Where a path leads, links followed; None if it is relative to nothing, or cannot be a path."""
    if folder is None and not os.path.isabs(path):
        return None
    try:
        return Path(os.path.realpath(os.path.join(folder or "/", path)))
    except (OSError, ValueError):  # a NUL character, a lone surrogate
        return None


def _lies_in(path: Path, granted: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(each) for each in granted)


def _sample(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_SAMPLE_BYTES)


def _window(path: Path, encoding: str, errors: str, offset: int, limit: int) -> tuple[str, int]:
    """The characters from `offset` on, in blocks: only the window is kept."""
    kept: list[str] = []
    total = 0
    with path.open(encoding=encoding, errors=errors) as file:
        while block := file.read(_BLOCK_CHARACTERS):
            start, end = max(0, offset - total), max(0, offset + limit - total)
            kept.append(block[start:end])
            total += len(block)
    return "".join(kept), total


def _binary(path: Path, size: int) -> InvalidInput:
    kind = mimetypes.guess_type(path.name)[0] or "of unknown type"
    return InvalidInput("path", f"{path} is no text ({kind}, {size:,} bytes); it cannot be read")
