"""What an agent remembers of its task between two runs: rows that are only ever appended, and a small state that says which count.

Pure. A retry goes on from the state as it stood when the task parked; rows that were written after that stay where they are, and
are not in its spans.
"""

from collections.abc import Sequence
from typing import Any

from baton_actors.agent.conversation import unanswered, writable


class Memory:
    """The conversation of one task.

    Attributes:
        messages: those that count, in order. rounds: model calls made in this generation, judgements aside.
        waiting: ids of the calls whose answers are the children's results, in spawn order; None if none were made by calls.
        approved: ids of open calls that a person has given leave for. parts: whether the children are the parts of a plan.
        partial: whether the answer that was given is not all of it.

    Args:
        rows: all that were ever saved. state: what was saved last; None at first.
    """

    def __init__(self, rows: Sequence[dict[str, Any]], state: Any, generation: int) -> None:
        known: dict[str, Any] = state or {}
        self._saved = len(rows)
        self._spans: list[list[int]] = [list(span) for span in known.get("spans", ())]
        self._generation = generation
        self._unsaved: list[dict[str, Any]] = []
        self._places: list[int] = [place for first, end in self._spans for place in range(first, end)]
        self.messages: list[dict[str, Any]] = [rows[place] for place in self._places]
        self.rounds: int = known.get("rounds", 0) if known.get("generation", generation) == generation else 0
        self.waiting: list[str] | None = known.get("waiting")
        self.approved: list[str] = list(known.get("approved", ()))
        self.parts: bool = known.get("parts", False)
        self.partial: bool = known.get("partial", False)

    def add(self, *messages: dict[str, Any]) -> None:
        """Append messages; they are saved with the next save."""
        first = self._saved + len(self._unsaved)
        end = first + len(messages)
        stored = [writable(message) for message in messages]
        self._unsaved += stored
        self.messages += stored
        self._places += range(first, end)
        if self._spans and self._spans[-1][1] == first:
            self._spans[-1][1] = end
        elif messages:
            self._spans.append([first, end])

    def begin_anew(self, *messages: dict[str, Any]) -> None:
        """From now on only these count; what was said before stays stored."""
        self._spans, self._places, self.messages = [], [], []
        self.rounds = 0
        self.add(*messages)

    def take_unsaved(self) -> list[dict[str, Any]]:
        """The rows that were not saved yet; they count as saved now."""
        rows, self._unsaved = self._unsaved, []
        self._saved += len(rows)
        return rows

    @property
    def fresh(self) -> bool:
        """Whether nothing of it has begun."""
        return not (self.messages or self.waiting or self.parts)

    def state(self, *, waiting: Sequence[str] | None = None, parts: bool = False) -> dict[str, Any]:
        """What the next run is to be handed; the arguments only with a breakdown, so that no run takes its children for granted."""
        spans = [list(span) for span in self._spans]
        state: dict[str, Any] = {"spans": spans, "generation": self._generation, "rounds": self.rounds}
        if waiting is not None:
            state["waiting"] = list(waiting)
        if parts:
            state["parts"] = True
        if self.partial:
            state["partial"] = True
        if self.approved:
            state["approved"] = list(self.approved)
        return state

    @property
    def final_text(self) -> str | None:
        """The answer, if the last word is an assistant's and calls nothing: its report was lost with its process."""
        last = self.messages[-1] if self.messages else {}
        content = last.get("content")
        return content if last.get("role") == "assistant" and not last.get("tool_calls") and isinstance(content, str) else None

    @property
    def last_words(self) -> str:
        """The last text of an assistant's, else what its tools said last; empty if there is neither."""
        for roles in (("assistant",), ("tool",)):
            texts = (message.get("content") for message in reversed(self.messages) if message.get("role") in roles)
            if last := next((text for text in texts if isinstance(text, str) and text.strip()), None):
                return last
        return ""

    @property
    def open_calls(self) -> list[dict[str, Any]]:
        """The calls of the last assistant's message that have no answer yet."""
        named = (({key: call[key] for key in ("name", "arguments")}, call["id"]) for call in unanswered(self.messages))
        return [{"id": id, "type": "function", "function": function} for function, id in named]

    @property
    def place(self) -> int:
        """Where the last assistant's message stands among all rows: a name for its calls that stays, in whatever run they are made."""
        assistants = (place for place, message in zip(self._places, self.messages, strict=True) if message.get("role") == "assistant")
        return max(assistants, default=0)

    @property
    def repeats(self) -> int:
        """How many rounds in a row, up to the last, made the same calls with the same arguments."""
        rounds = [_signature(message) for message in self.messages if message.get("role") == "assistant"]
        count = 0
        for signature in reversed(rounds):
            if signature != rounds[-1] or not signature:
                break
            count += 1
        return count


def _signature(message: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())))
