"""What the agent needs of a model: a request goes in, one assistant message comes out, or an error that says what it means."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from baton_actors.errors import BatonError

#: What the loop does about an error. `retry`: it passes by itself (429, 5xx, a broken connection). `refused`: the model will
#: not. `too_long`: the conversation does not fit. `no_tools`: the server knows no tools. `no_schema`: no JSON schema.
#: `final`: it will fail again.
Meaning = Literal["retry", "refused", "too_long", "no_tools", "no_schema", "final"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call.

    Attributes:
        messages: valid Chat Completions messages. tools: definitions as that protocol has them; empty: none are offered.
        schema: the JSON schema that the content must satisfy. max_tokens: of the answer. temperature: None is the server's own.
        extra: fields of this server's own. on_text: called with each piece of content as it is generated; None asks for the
            answer in one piece.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    on_text: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    Attributes:
        message: the assistant's message as it is stored and sent back, unknown fields verbatim. Its tool calls have ids,
            names and `arguments` as text, which may be no JSON.
        finish_reason: the server's word. usage: `tokens_in tokens_out tokens_cached cost`, as far as known.
    """

    message: dict[str, Any]
    finish_reason: str = "stop"
    usage: dict[str, float] = field(default_factory=dict)


class Model(Protocol):
    """A model behind some address."""

    async def answer(self, request: Request) -> Reply:
        """One assistant message.

        Raises:
            ModelError: says what the failure means.
        """


class ModelError(BatonError):
    """A model call failed.

    Attributes:
        why: one line for a person. meaning: what to do about it. after: seconds that the server asks to wait, if it does.
        usage: what was used all the same, as in `Reply`.
    """

    def __init__(self, why: str, meaning: Meaning = "final", after: float | None = None, usage: Mapping[str, float] | None = None) -> None:
        super().__init__(why, meaning, after, usage)
        self.why = why
        self.meaning = meaning
        self.after = after
        self.usage = dict(usage or {})

    def __str__(self) -> str:
        return self.why
