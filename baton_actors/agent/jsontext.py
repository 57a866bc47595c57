"""JSON that a model or a server wrote, read so that nothing in it can hurt later: pure."""

import json
from collections.abc import Iterator
from typing import Any

from baton_actors.agent.conversation import writable

#: Places in a text at which an object is looked for.
MOST_TRIES = 100
_DECODER = json.JSONDecoder()


def parsed(text: str) -> Any:
    """The value of a JSON text, without what cannot be stored: NUL and lone surrogates behind escapes, numbers that are none.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return writable(json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand in a text one after the other, whatever words are around them."""
    start, left = text.find("{"), MOST_TRIES
    while start >= 0 and left:
        left -= 1
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield writable(value)
        start = text.find("{", end)
