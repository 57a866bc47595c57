"""How the small local model is asked, word for word: pure. What stands here was tried on SmolLM2-135M-Instruct, at temperature 0.

It follows examples, not instructions: one worked pair keeps an answer short and on its subject, and a `stop` ends it. A penalty
for repetition keeps short answers from looping, and spoils plans and reading. It finds a fact in a page of text only if little
stands beside it, so the paragraphs that share words with the question are picked out by code.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baton_actors.agent.prompts import PART_OF, as_text
from baton_actors.baton import ChildResult, Status

#: Characters of text that it reads well at a time.
READ_CHARACTERS = 1_200
#: What is answered for a part of a text that shares no word with the question; it is never asked about one.
NOTHING_FOUND = "Nothing in this part of the text."
_NO_FACT = "The text does not say anything about it."
#: Characters of each child's result in the summary.
_RESULT_CHARACTERS = 700


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of request.

    Attributes:
        messages: to begin with. tokens: of the answer at most. extra: fields of llama.cpp's own.
    """

    messages: list[dict[str, Any]]
    tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)


_PLANNER = "You split a task into smaller independent subtasks. Reply in JSON."
_PLANS = (
    (
        "Organise a birthday party for a child",
        ("Choose a date and invite the guests", "Plan the food and the birthday cake", "Prepare games for the children"),
    ),
    ("Write an article about coffee", ("Where coffee comes from", "How coffee is made", "Why people drink coffee")),
)
_COMPARISON = (
    "Compare London, Berlin and Madrid for a school trip",
    ("Describe London for a school trip", "Describe Berlin for a school trip", "Describe Madrid for a school trip"),
)
#: It copies an example's parts when it is lost.
COPIED = frozenset(part for _, parts in (*_PLANS, _COMPARISON) for part in parts)


def plan(goal: str) -> Shape:
    """The request for a plan, with a comparison as the example of one, and two others for all else."""
    examples = (_COMPARISON,) if goal.casefold().startswith("compare") else _PLANS
    messages = [_system(_PLANNER)]
    for task, parts in examples:
        messages += [_user(f"Task: {task}"), {"role": "assistant", "content": json.dumps({"subtasks": parts})}]
    return Shape([*messages, _user(f"Task: {goal}")], 160)


def answer(goal: str, context: Mapping[str, Any], prompt: str | None) -> Shape:
    """The request for a short answer. What the goal is a part of is said only if the goal does not say it itself."""
    whole = context.get(PART_OF)
    about = f" (about: {whole})" if isinstance(whole, str) and len(_words(whole) & _words(goal)) < 2 else ""
    given = {name: value for name, value in context.items() if name != PART_OF}
    data = f"\n{json.dumps(given, ensure_ascii=False)}" if given else ""
    messages = [
        _system("You answer in a few plain sentences. Answer only what is asked, then stop.", prompt),
        _user("Bake the bread in the oven (about: Write a short guide to baking bread)"),
        _assistant(
            "Heat the oven to 230 degrees and put the dough on a tray. Bake it for 35 minutes, until the crust is brown. "
            "Let it cool before you cut it."
        ),
        _user(f"{goal}{about}{data}"),
    ]
    return Shape(messages, 120, {"repeat_penalty": 1.1, "stop": ["\n"]})


def summary(goal: str, children: Sequence[ChildResult], prompt: str | None) -> Shape:
    """The request for one answer made of the children's."""
    notes = "\n".join(_noted(child) for child in children if child.status is Status.COMPLETED)
    baked = (
        "Take strong wheat flour.\nKnead the dough for ten minutes and let it rise for two hours.\nBake it at 230 degrees for 35 minutes."
    )
    messages = [
        _system("You put notes together into one answer.", prompt),
        _user(f"Notes:\n{baked}\n\nTask: Write a short guide to baking bread"),
        _assistant(
            "Take strong wheat flour. Knead the dough for ten minutes, and let it rise for two hours. "
            "Then bake the bread at 230 degrees for 35 minutes."
        ),
        _user(f"Notes:\n{notes}\n\nTask: {goal}"),
    ]
    return Shape(messages, 220, {"repeat_penalty": 1.05, "stop": ["\n\n"]})


def reading(question: str, text: str, prompt: str | None) -> Shape:
    """The request for the answer to a question about a text, of which only what may matter is shown."""
    messages = [
        _system("You answer questions about a text in one sentence.", prompt),
        _user("Text:\nThe museum opens at nine. It is closed on Mondays. Tickets are 8 euros.\n\nQuestion: When is it closed?"),
        _assistant("The museum is closed on Mondays."),
        _user(f"Text:\n{relevant(text, question) or text[:READ_CHARACTERS]}\n\nQuestion: {question}"),
    ]
    return Shape(messages, 80, {"stop": ["\n"]})


def readers_summary(question: str, children: Sequence[ChildResult], prompt: str | None) -> Shape:
    """The request for one answer made of what the readers of the parts of a text found."""
    found = [as_text(child.result) for child in children if child.status is Status.COMPLETED and child.result != NOTHING_FOUND]
    return reading(question, "\n\n".join(found) or _NO_FACT, prompt)


def relevant(text: str, question: str) -> str:
    """The paragraphs that share most words with a question, in the order of the text but the best one last; empty if none does."""
    wanted = _words(question)
    paragraphs = [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    scores = [len(wanted & _words(paragraph)) for paragraph in paragraphs]
    best = sorted((place for place in range(len(paragraphs)) if scores[place]), key=lambda place: (-scores[place], place))
    chosen: list[int] = []
    left = READ_CHARACTERS
    for place in best:
        if len(paragraphs[place]) <= left or not chosen:
            chosen.append(place)
            left -= len(paragraphs[place])
    if not chosen:
        return ""
    ordered = [*sorted(chosen[1:]), chosen[0]]
    return "\n\n".join(_cut(paragraphs[place], wanted) for place in ordered)


def _cut(paragraph: str, wanted: frozenset[str]) -> str:
    """A paragraph that is too long begins at the first line with a wanted word."""
    if len(paragraph) <= READ_CHARACTERS:
        return paragraph
    lines = paragraph.splitlines()
    first = max(range(len(lines)), key=lambda place: (len(wanted & _words(lines[place])), -place))
    return "\n".join(lines[max(0, first - 1) :])[:READ_CHARACTERS]


#: Words of a question that say nothing of its subject.
_EMPTY_WORDS = frozenset(
    ["what", "which", "when", "where", "this", "that", "does", "with", "from", "have", "there", "about", "they", "will"]
)


def _words(text: str) -> frozenset[str]:
    """The words of four letters and more, each by its first five: `licence` and `licensed` meet."""
    return frozenset(word[:5] for word in re.findall(r"\w{4,}", text.casefold()) if word not in _EMPTY_WORDS)


def _noted(child: ChildResult) -> str:
    return " ".join(as_text(child.result).split())[:_RESULT_CHARACTERS]


def _system(text: str, prompt: str | None = None) -> dict[str, Any]:
    return {"role": "system", "content": f"{text} {prompt}" if prompt else text}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}
