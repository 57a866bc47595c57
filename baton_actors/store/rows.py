"""Baton fields to columns and back; JSON is encoded here and nowhere else in the store.

What is read is not validated again: it was when it came in, and 10,000 batons must load within a second.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from baton_actors.baton import NOTIFY_LEVELS, Baton, Constraints, ErrorKind, Status
from baton_actors.events import Event, EventType
from baton_actors.jsonable import encode
from baton_actors.store.records import TreeRow
from baton_actors.store.tables import batons, events, messages, trees

BATON_COLUMNS = tuple(column.name for column in batons.columns)
EVENT_COLUMNS = tuple(column.name for column in events.columns)
MESSAGE_COLUMNS = tuple(column.name for column in messages.columns)
_TREE_COLUMNS = tuple(column.name for column in trees.columns)
_TREE_JSON = frozenset({"budget", "code", "answered", "agent"})
#: Fields of a baton whose columns have another name.
_RENAMED = {"breakdown": "breakdowns"}

_NOTIFY = {level: place for place, level in enumerate(NOTIFY_LEVELS)}
_STATUS = {str(status): status for status in Status}
_KIND: dict[str | None, ErrorKind | None] = {None: None, **{str(kind): kind for kind in ErrorKind}}
_TYPE = {str(type_): type_ for type_ in EventType}
#: Copied for each baton that is read: the quickest public way past validation.
_BLANK = Baton(id="", root_id="", goal="")
#: A plain str of a StrEnum member: drivers are slow with, or refuse, subclasses.
_text = str.__str__


def _object(value: dict[str, Any]) -> str:
    return encode(value) if value else "{}"


def _optional(value: Any) -> str | None:
    return None if value is None else encode(value)


def _optional_text(value: str | None) -> str | None:
    return None if value is None else _text(value)


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "context": _object,
    "tools": _optional,
    "result_type": _optional,
    "resources": _object,
    "status": _text,
    "error_kind": _optional_text,
    "usage": _object,
    "notify": _NOTIFY.__getitem__,
    "state": _optional,
    "parked": _optional,
    "reserved": _object,
}


@lru_cache(256)
def _plan(names: tuple[str, ...], completed: bool) -> tuple[tuple[str, ...], tuple[tuple[str, Callable[[Any], Any] | None], ...]]:
    """Which columns a change of these fields sets, and how each value is encoded. A completed baton's null is a result."""
    stored = [name for name in names if name != "children"]
    encoders = {**_ENCODERS, "result": encode if completed else _optional}
    return tuple(_RENAMED.get(name, name) for name in stored), tuple((name, encoders.get(name)) for name in stored)


def changed_rows(changed: dict[str, dict[str, Any]]) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Changes grouped by the columns they set; each row holds those columns' values and, last, the id."""
    grouped: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for id, values in changed.items():
        columns, fields = _plan(tuple(values), values.get("status") == "completed")
        if not columns:
            continue
        row = [values[name] if encoder is None else encoder(values[name]) for name, encoder in fields]
        row.append(id)
        rows = grouped.get(columns)
        if rows is None:
            grouped[columns] = rows = []
        rows.append(tuple(row))
    return grouped


def created_rows(created: dict[str, dict[str, Any]], positions: dict[str, int]) -> list[tuple[Any, ...]]:
    """Whole batons in the order of `BATON_COLUMNS`."""
    return [_created_row(values, positions.get(id, 0)) for id, values in created.items()]


def _created_row(v: dict[str, Any], position: int) -> tuple[Any, ...]:
    bounds: Constraints = v["constraints"]
    get = v.get
    return (
        v["id"],
        v["parent_id"],
        v["depth"],
        v["goal"],
        _object(v["context"]),
        _optional(v["tools"]),
        v["prompt"],
        bounds.max_rounds,
        float(bounds.timeout_hint),
        _text(v["status"]),
        encode(v["result"]) if v["status"] == "completed" else _optional(v["result"]),
        v["error"],
        v["channel"],
        _NOTIFY[v["notify"]],
        v["created_at"],
        v["updated_at"],
        v["root_id"],
        position,
        v["worker"],
        v["model"],
        _optional(v["result_type"]),
        _object(v["resources"]),
        bounds.breakdown,
        bounds.on_child_failure,
        bounds.max_retries,
        encode(bounds.retry_on) if bounds.retry_on else "[]",
        v["partial"],
        _optional_text(v["error_kind"]),
        v["attempt"],
        v["losses"],
        v["generation"],
        v["rounds"],
        _object(v["usage"]),
        v["held"],
        v["not_before"],
        v["deadline"],
        get("breakdown", 0),
        get("since", 0),
        get("retries", 0),
        get("alone", False),
        _optional(get("state")),
        _optional(get("parked")),
        get("reborn_at"),
        _object(get("reserved", {})),
        get("spoken", 0),
    )


def load_batons(rows: Iterable[Sequence[Any]], children: dict[str, list[str]] | None = None) -> list[tuple[Baton, dict[str, Any]]]:
    """Batons, and what their owner keeps beside each.

    Args:
        rows: of `batons`, columns in the order of `BATON_COLUMNS`.
        children: ids in spawn order by parent; None if `rows` is a whole tree in the order of (depth, position).
    """
    if children is None:
        rows = list(rows)
        children = {}
        for row in rows:
            if row[1] is not None:
                children.setdefault(row[1], []).append(row[0])
    return [_load_baton(row, children.get(row[0], [])) for row in rows]


def _load_baton(row: Sequence[Any], children: list[str]) -> tuple[Baton, dict[str, Any]]:
    # fmt: off
    (
        id, parent_id, depth, goal, context, tools, prompt, max_rounds, timeout_hint, status, result, error,
        channel, notify, created_at, updated_at, root_id, _, worker, model, result_type, resources, breakdown_policy,
        on_child_failure, max_retries, retry_on, partial, error_kind, attempt, losses, generation, rounds, usage,
        held, not_before, deadline, breakdowns, since, retries, alone, state, parked, reborn_at, reserved,
        spoken,
    ) = row
    # fmt: on
    fields = {
        "id": id,
        "root_id": root_id,
        "parent_id": parent_id,
        "children": children,
        "depth": depth,
        "goal": goal,
        "context": _decoded(context),
        "tools": _decoded(tools),
        "prompt": prompt,
        "constraints": _constraints(max_rounds, timeout_hint, breakdown_policy, on_child_failure, max_retries, retry_on),
        "worker": worker,
        "model": model,
        "result_type": _decoded(result_type),
        "resources": _decoded(resources),
        "status": _STATUS[status],
        "result": _decoded(result),
        "partial": bool(partial),
        "error": error,
        "error_kind": _KIND[error_kind],
        "attempt": attempt,
        "losses": losses,
        "generation": generation,
        "rounds": rounds,
        "usage": _decoded(usage),
        "held": bool(held),
        "not_before": not_before,
        "deadline": deadline,
        "created_at": created_at,
        "updated_at": updated_at,
        "channel": channel,
        "notify": NOTIFY_LEVELS[notify],
    }
    beside = {
        "breakdown": breakdowns,
        "since": since,
        "retries": retries,
        "alone": bool(alone),
        "state": _decoded(state),
        "parked": _decoded(parked),
        "reborn_at": reborn_at,
        "reserved": _decoded(reserved),
        "spoken": spoken,
    }
    return _BLANK.model_copy(update=fields), beside


def _decoded(text: str | None) -> Any:
    if text is None:
        return None
    return {} if text == "{}" else json.loads(text)


@lru_cache(256)
def _constraints(*bounds: Any) -> Constraints:
    """Batons of one tree mostly have the same bounds, so they share them."""
    max_rounds, timeout_hint, breakdown, on_child_failure, max_retries, retry_on = bounds
    return Constraints.model_construct(
        max_rounds=max_rounds,
        timeout_hint=timeout_hint,
        breakdown=breakdown,
        on_child_failure=on_child_failure,
        max_retries=max_retries,
        retry_on=json.loads(retry_on),
    )


def event_rows(group: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Events in the order of `EVENT_COLUMNS`."""
    return [
        (e.root_id, e.seq, _text(e.type), e.at, e.baton_id, e.parent_id, e.depth, e.attempt, encode(e.data) if e.data else "{}")
        for e in group
    ]


def load_event(row: Sequence[Any]) -> Event:
    """The event of a row in the order of `EVENT_COLUMNS`."""
    root_id, seq, type_, at, baton_id, parent_id, depth, attempt, data = row
    return Event(seq, _TYPE[type_], at, root_id, baton_id, parent_id, depth, attempt, _decoded(data))


def tree_values(values: dict[str, Any]) -> dict[str, Any]:
    """Fields of `TreeRow` as columns."""
    return {name: encode(value) if name in _TREE_JSON else value for name, value in values.items()}


def load_tree(row: Sequence[Any]) -> TreeRow:
    """The tree of a row of `trees`, all columns in their order."""
    values = dict(zip(_TREE_COLUMNS, row, strict=True))
    return TreeRow(**{name: json.loads(value) if name in _TREE_JSON else value for name, value in values.items()})
