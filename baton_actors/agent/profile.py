"""How much of a task fits into one prompt of a model, and what it is offered."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """What a kind of model can take.

    Attributes:
        small: it plans by an example, hands nothing on by itself, and is asked for a few sentences.
        input_characters: of the texts that the context names, put into the prompt. result_characters: of all children's results.
        tool_characters: of one tool's answer; None is the tools' own limit.
        answer_tokens: of one answer; None is the server's own limit.
    """

    small: bool
    input_characters: int
    result_characters: int
    answer_tokens: int | None
    tool_characters: int | None = None


LARGE = Profile(small=False, input_characters=40_000, result_characters=48_000, answer_tokens=None)
#: A better model in the place of the local one: 4,096 tokens for prompt and answer together.
MEDIUM = Profile(small=False, input_characters=6_000, result_characters=5_000, answer_tokens=800, tool_characters=3_000)
#: 135 million parameters in the same room; it reads in parts of a text, since it is lost in a long one.
SMALL = Profile(small=True, input_characters=4_000, result_characters=2_400, answer_tokens=200, tool_characters=1_500)
