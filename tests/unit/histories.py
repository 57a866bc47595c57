"""Conversations for tests: messages made shortly, valid histories, and histories broken at random."""

from typing import Any

import hypothesis.strategies as st

SYSTEM = {"role": "system", "content": "Be brief."}
GOAL: Any = {"role": "user", "content": "Read both files."}


def call(id: Any, name: Any = "read", arguments: Any = '{"path": "a"}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def asks(*called: Any, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(called), **more}


def answer(id: Any, content: Any = "text") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


VALID = [
    [GOAL],
    [SYSTEM, {"role": "developer", "content": "Be kind.", "name": "boss"}, user([{"type": "text", "text": "hi"}])],
    [GOAL, asks(call("a"), call("b")), answer("a"), answer("b", ""), {"role": "assistant", "content": "Done."}, user("And now?")],
    [GOAL, asks(call("a"), content="I read."), answer("a"), asks(call("a"), content=""), answer("a", [{"type": "text", "text": "x"}])],
    [GOAL, {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "reasoning_details": [{"a": [1, None]}], "refusal": None}],
    [
        user(
            [
                {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                {"type": "file", "file": {"file_id": "f", "filename": "a.pdf"}},
            ]
        )
    ],
    [
        GOAL,
        {"role": "assistant", "tool_calls": [call("a", extra_content={"google": {"thought_signature": "x"}})]},
        {**answer("a"), "name": "read"},
    ],
    [GOAL, asks(call("a", arguments='{"{"ids": [')), answer("a", "no JSON")],
]


#: Also NUL and lone surrogates.
texts = st.text(st.characters(exclude_categories=()), max_size=12)
said = texts.filter(lambda text: bool(text.strip()) and "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text))
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
ids = st.sampled_from(["a", "b", "c", "call_0_read", "call_1_read"])
names = st.sampled_from(["read", "list-files", "spawn_task"])
arguments = st.sampled_from(["{}", '{"path": "a"}', "{broken", "null"])
valid_parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": said}),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": said})}),
)


@st.composite
def valid_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    chosen = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    return [{"id": id, "type": "function", "function": {"name": draw(names), "arguments": draw(arguments)}} for id in chosen]


@st.composite
def valid_histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "system", "content": draw(said)}] if draw(st.booleans()) else []
    history.append({"role": "user", "content": draw(said | st.lists(valid_parts, min_size=1, max_size=2))})
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["calls", "calls", "text", "user"])):
            case "calls":
                called = draw(valid_calls())
                more = draw(st.fixed_dictionaries({}, optional={"content": st.none() | said, "reasoning_content": said}))
                history.append({"role": "assistant", **more, "tool_calls": called})
                history += [{"role": "tool", "tool_call_id": call["id"], "content": draw(said | st.just(""))} for call in called]
            case "text":
                history.append({"role": "assistant", "content": draw(said)})
            case _:
                history.append({"role": "user", "content": draw(said)})
    return history


def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """The value with one thing in it replaced, dropped or doubled."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if draw(st.integers(0, 3)) == 0 else {**rest, key: spoiled(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        item = spoiled(draw, value[place])
        return [*value[:place], *draw(st.sampled_from([[], [item], [item], [value[place], item]])), *value[place + 1 :]]
    return draw(junk | ids)


@st.composite
def broken_histories(draw: st.DrawFn) -> list[Any]:
    """A valid history after some accidents: messages dropped, doubled, swapped, spoiled, put in from elsewhere."""
    history: list[Any] = list(draw(valid_histories()))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(history)))
        match draw(st.sampled_from(["drop", "double", "move", "spoil", "spoil", "junk", "shuffle"])):
            case "drop":
                del history[place : place + 1]
            case "double":
                history[place:place] = history[place : place + 1]
            case "move" if history:
                history.insert(place, history.pop(draw(st.integers(0, len(history) - 1))))
            case "spoil":
                history[place : place + 1] = [spoiled(draw, each) for each in history[place : place + 1]]
            case "junk":
                role = st.sampled_from(["system", "user", "assistant", "tool", "function", "developer"])
                fields = {"content": junk, "tool_calls": junk, "tool_call_id": ids | junk, "name": texts}
                history.insert(place, draw(junk | st.fixed_dictionaries({"role": role}, optional=fields)))
            case _:
                history = draw(st.permutations(history))
    return history
