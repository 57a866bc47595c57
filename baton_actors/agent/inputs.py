"""The texts that a task's context names: shown in its prompt as far as they fit, or shared out among children.

A `part` in the context says which stretch of a single text a child is to look at, and what is asked of the whole:
`{"offset": 0, "characters": 4000, "question": "…"}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baton_actors.capabilities.builtin import granted_paths, text_of
from baton_actors.errors import InvalidInput

#: Where a child's stretch of a text stands in its context.
PART = "part"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of one text.

    Attributes:
        name: of the file, as a person knows it. offset, total: in characters. fault: why it could not be read.
    """

    name: str
    text: str
    offset: int
    total: int
    fault: str | None = None

    @property
    def end(self) -> int:
        """Where it ends, in characters of the whole."""
        return self.offset + len(self.text)

    @property
    def whole(self) -> bool:
        """Whether nothing of the text is left out."""
        return self.fault is None and self.offset == 0 and self.end >= self.total


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run reads before it begins.

    Attributes:
        texts: shown in the prompt. stretches: into which the only text is shared out if it is too long; else none.
    """

    texts: tuple[Excerpt, ...] = ()
    stretches: tuple[dict[str, int], ...] = ()


def read_inputs(context: Mapping[str, Any], folder: Path | None, characters: int) -> Inputs:
    """The texts that the context names, as far as they fit into so many characters; files are read here, and nowhere later."""
    return Inputs(tuple(excerpts(context, folder, characters)), tuple(parts(context, folder, characters)))


def excerpts(context: Mapping[str, Any], folder: Path | None, characters: int) -> list[Excerpt]:
    """The texts that the context names, together at most so many characters; folders are not texts, and are left out."""
    files = [path for path in granted_paths(context, folder) if not path.is_dir()]
    part = context.get(PART)
    offset, most = _stretch(part, characters) if len(files) == 1 else (0, characters)
    shown = []
    for place, path in enumerate(files):
        room = most // (len(files) - place)
        excerpt = _excerpt(path, offset, room)
        most -= len(excerpt.text)
        shown.append(excerpt)
    return shown


def _stretch(part: Any, characters: int) -> tuple[int, int]:
    if not isinstance(part, Mapping):
        return 0, characters
    offset, wanted = part.get("offset"), part.get("characters")
    if type(offset) is not int or type(wanted) is not int or offset < 0:
        return 0, characters
    return offset, min(characters, max(0, wanted))


def _excerpt(path: Path, offset: int, characters: int) -> Excerpt:
    try:
        text, total = text_of(path, offset, characters)
    except InvalidInput as error:
        return Excerpt(path.name, "", offset, 0, error.why.removeprefix(f"{path} cannot be read: "))
    return Excerpt(path.name, text, offset, total)


def question_of(context: Mapping[str, Any]) -> str | None:
    """What is asked of a text of which a task has a part; None if it has none."""
    part = context.get(PART)
    question = part.get("question") if isinstance(part, Mapping) else None
    return question if isinstance(question, str) else None


def parts(context: Mapping[str, Any], folder: Path | None, characters: int) -> list[dict[str, int]]:
    """The stretches into which the only text of a context is shared out, equally long; none if it fits, or is a part already."""
    files = [path for path in granted_paths(context, folder) if not path.is_dir()]
    if len(files) != 1 or PART in context:
        return []
    total = _excerpt(files[0], 0, 0).total
    count = -(-total // characters)
    if count < 2:
        return []
    each = -(-total // count)
    return [{"offset": offset, "characters": each} for offset in range(0, total, each)]
