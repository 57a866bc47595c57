"""Whether a run kept the promises, by the rows of the database and its own history alone.

Nothing of the runtime is used here: the statuses and their order are written down once more, as a user would understand them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import create_engine, text

from tests.chaos.plans import evaluated

Row = dict[str, Any]
Line = Mapping[str, Any]

#: From which statuses an event may come, and to which it leads; None: to the same.
STEPS: dict[str, tuple[frozenset[str | None], str | None]] = {
    "baton.created": (frozenset({None}), "pending"),
    "baton.started": (frozenset({"pending"}), "running"),
    "baton.waiting": (frozenset({"pending"}), "running"),
    "baton.progress": (frozenset({"pending", "running"}), None),
    "baton.spawned": (frozenset({"running", "failed", "completed"}), "spawned"),
    "baton.resumed": (frozenset({"spawned"}), "pending"),
    "baton.retrying": (frozenset({"running", "failed"}), "pending"),
    "baton.handed_over": (frozenset({"running"}), "pending"),
    "baton.completed": (frozenset({"running"}), "completed"),
    "baton.failed": (frozenset({"pending", "running", "spawned"}), "failed"),
}
LIVE = frozenset({"pending", "running", "spawned"})
TREE_ENDS = frozenset({"tree.completed", "tree.failed"})
#: After so many losses in a row, alone in its process, a baton has crashed.
LOSSES = 4


@dataclass(frozen=True)
class Recorded:
    """The rows of a database: trees, batons and events, JSON columns decoded, events in order."""

    trees: list[Row]
    batons: list[Row]
    events: list[Row]


def recorded(url: str) -> Recorded:
    """Read them. `url` is SQLAlchemy's."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:

        def rows(query: str, *json_columns: str) -> list[Row]:
            found = [dict(row) for row in connection.execute(text(query)).mappings()]
            return [{**row, **{name: json.loads(row[name]) for name in json_columns if row[name] is not None}} for row in found]

        kept = Recorded(
            rows("SELECT * FROM trees ORDER BY created_at"),
            rows("SELECT * FROM batons ORDER BY root_id, depth, position", "result"),
            rows("SELECT * FROM events ORDER BY root_id, seq", "data"),
        )
    engine.dispose()
    return kept


@dataclass
class _Known:
    """What the log says of one baton so far."""

    parent: str | None
    status: str = "pending"
    attempt: int = 0
    generation: int = 0
    breakdown: int = 0
    unfinished: int = 0
    losses: list[int] = field(default_factory=list)


def faults(rows: Recorded, history: Sequence[Line]) -> list[str]:
    """Every promise that was broken, a line each; none: the run was right."""
    batons, events = _by_tree(rows.batons), _by_tree(rows.events)
    found = []
    for tree in rows.trees:
        root_id = tree["root_id"]
        found += [f"{root_id}: {fault}" for fault in _tree_faults(tree, batons[root_id], events[root_id])]
    found += _history_faults(rows, {baton["id"]: baton for baton in rows.batons}, events, history)
    return found


def crashed(rows: Recorded) -> list[str]:
    """Batons that were killed too often in a row, rightly: their trees have no expected result."""
    return [baton["id"] for baton in rows.batons if baton["error_kind"] == "crashed"]


def _by_tree(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["root_id"]].append(row)
    return found


# ---------------------------------------------------------------- one tree by its rows


def _tree_faults(tree: Row, batons: list[Row], events: list[Row]) -> Iterator[str]:
    if tree["status"] == "open":
        yield f"is still open, owner {tree['owner']}, epoch {tree['epoch']}"
    elif tree["owner"] is not None:
        yield f"has ended and is still owned by {tree['owner']}"
    seqs = [event["seq"] for event in events]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"its log has a gap: {len(seqs)} events up to seq {max(seqs, default=0)}"
    if tree["seq"] != max(seqs, default=0):
        yield f"its row says seq {tree['seq']}, its log {max(seqs, default=0)}"
    known: dict[str, _Known] = {}
    yield from _replay(tree["root_id"], known, events)
    if known.keys() != {baton["id"] for baton in batons}:
        yield f"{len(known)} batons in the log, {len(batons)} rows"
    for baton in batons:
        if (told := known.get(baton["id"])) is not None:
            for name in ("status", "attempt", "generation"):
                if getattr(told, name) != baton[name]:
                    yield f"{baton['id']} has {name} {baton[name]}, by its log {getattr(told, name)}"
        if baton["status"] in LIVE and tree["status"] != "open":
            yield f"{baton['id']} is {baton['status']} in a tree that has ended"
    root = next((baton for baton in batons if baton["id"] == tree["root_id"]), None)
    if root is None or (tree["status"] != "open" and root["status"] != tree["status"]):
        yield f"is {tree['status']}, its root is {root and root['status']}"


def _replay(root_id: str, known: dict[str, _Known], events: list[Row]) -> Iterator[str]:
    resumes = set()
    ended = False
    for event in events:
        kind, id, data = event["type"], event["baton_id"], event["data"]
        at = f"seq {event['seq']} {kind} {id}"
        if ended and kind != "tree.reopened":
            yield f"{at}: after the end of the tree"
        if kind in TREE_ENDS:
            ended = True
            if f"tree.{known[root_id].status}" != kind:
                yield f"{at}: its root is {known[root_id].status}"
            if live := [each for each, told in known.items() if told.status in LIVE]:
                yield f"{at}: {len(live)} batons are live"
        elif kind == "tree.reopened":
            ended = False
        else:
            yield from (f"{at}: {fault}" for fault in _step(known, event))
            if kind == "baton.resumed":
                resume = (id, data["generation"], data["breakdown"])
                if resume in resumes:
                    yield f"{at}: resumed twice for breakdown {data['breakdown']} of generation {data['generation']}"
                resumes.add(resume)
    if events and not ended:
        yield f"its last event is {events[-1]['type']} of {events[-1]['baton_id']}"


def _step(known: dict[str, _Known], event: Row) -> Iterator[str]:
    """One event of a baton, made true in `known`, and what is wrong with it."""
    kind, id, data = event["type"], event["baton_id"], event["data"]
    before = known[id].status if id in known else None
    allowed, after = STEPS[kind]
    if before not in allowed:
        yield f"it was {before}"
    if id not in known:
        known[id] = _Known(event["parent_id"])
        if event["parent_id"] is not None:
            if event["parent_id"] not in known:
                yield f"its parent {event['parent_id']} is not in the log"
            else:
                known[event["parent_id"]].unfinished += 1
    told = known[id]
    expected = told.attempt + (kind in ("baton.started", "baton.waiting"))
    if event["attempt"] != expected:
        yield f"of attempt {event['attempt']}, expected was {expected}"
    told.attempt = event["attempt"]
    yield from _particulars(told, kind, data)
    told.status = after or told.status
    if before is not None and told.parent in known and (before in LIVE) != (told.status in LIVE):
        known[told.parent].unfinished += 1 if told.status in LIVE else -1


def _particulars(told: _Known, kind: str, data: Row) -> Iterator[str]:
    again = data.get("reason") == "retry"
    if kind == "baton.progress" and told.status == "pending" and data.get("kind") != "released":
        yield f"a {data.get('kind')} of an attempt that does not run"
    if kind in ("baton.retrying", "baton.spawned") and again:
        told.generation += 1
        if told.attempt and told.status == "running":
            yield "retried while it runs"
    elif kind == "baton.spawned":
        told.breakdown += 1
    if kind in ("baton.spawned", "baton.resumed") and (data["generation"], data["breakdown"]) != (told.generation, told.breakdown):
        wrong = f"breakdown {data['breakdown']} of generation {data['generation']}"
        yield f"{wrong}, it is at {told.breakdown} of {told.generation}"
    if kind in ("baton.resumed", "baton.completed") and told.unfinished:
        yield f"{told.unfinished} of its children have not ended"
    if kind == "baton.retrying" and data.get("losses"):
        told.losses.append(data["losses"])
    elif kind == "baton.failed" and data.get("error_kind") == "crashed":
        if told.losses[-(LOSSES - 1) :] != list(range(1, LOSSES)):
            yield f"crashed after losses {told.losses}"
    elif kind not in ("baton.started", "baton.retrying"):
        told.losses.clear()


# ---------------------------------------------------------------- what clients were told


def _history_faults(rows: Recorded, batons: Mapping[str, Row], events: Mapping[str, list[Row]], history: Sequence[Line]) -> Iterator[str]:
    submitted = [line for line in history if line["kind"] == "submitted"]
    by_key = {tree["idempotency_key"]: tree["root_id"] for tree in rows.trees}
    for line in submitted:
        if line["root_id"] not in batons:
            yield f"{line['root_id']}: was acknowledged and is not there"
        elif by_key.get(line["key"]) != line["root_id"]:
            yield f"{line['root_id']}: its key {line['key']} belongs to {by_key.get(line['key'])}"
        else:
            yield from _result_faults(line, rows, batons[line["root_id"]], history)
    for line in history:
        match line["kind"]:
            case "ordered" if line["outcome"] == "done":
                yield from _order_faults(line, batons, events)
            case "told":
                yield from _told_faults(line, batons)
            case "heard":
                stored = [[event["seq"], event["type"]] for event in events.get(line["root_id"], ())]
                if line["events"] != stored[: len(line["events"])]:
                    yield f"{line['root_id']}: a subscriber was told {_first_difference(line['events'], stored)}"
    yield from _epoch_faults(history)


def _result_faults(line: Line, rows: Recorded, root: Row, history: Sequence[Line]) -> Iterator[str]:
    orders = {
        each["order"] for each in history if each["kind"] == "ordered" and each["root_id"] == root["id"] and each["outcome"] != "refused"
    }
    if root["error_kind"] == "cancelled":
        if "cancel" not in orders:
            yield f"{root['id']}: was cancelled, and nobody asked for it"
        return
    if root["generation"] and "retry" not in orders:
        yield f"{root['id']}: was retried, and nobody asked for it"
    if any(baton["root_id"] == root["id"] and baton["error_kind"] == "crashed" for baton in rows.batons):
        return
    completed, value = evaluated(line["plan"], retried=root["generation"] > 0)
    right = ("completed", value) if completed else ("failed", None)
    if root["status"] in ("completed", "failed") and (root["status"], root["result"]) != right:
        yield f"{root['id']}: is {root['status']} with {root['result']}, right is {right[0]} with {right[1]}"


def _order_faults(line: Line, batons: Mapping[str, Row], events: Mapping[str, list[Row]]) -> Iterator[str]:
    baton = batons.get(line["baton_id"])
    if baton is None:
        yield f"{line['baton_id']}: {line['order']} was acknowledged, and it is not there"
        return
    match line["order"]:
        case "cancel" if baton["error_kind"] != "cancelled":
            yield f"{baton['id']}: its cancel was acknowledged, it is {baton['status']}"
        case "answer" if (baton["status"], baton["result"]) != ("completed", line["value"]):
            yield f"{baton['id']}: its answer {line['value']} was acknowledged, it is {baton['status']} with {baton['result']}"
        case "retry" if not baton["generation"] or not any(event["type"] == "tree.reopened" for event in events[baton["root_id"]]):
            yield f"{baton['id']}: its retry was acknowledged, it is in generation {baton['generation']}"


def _told_faults(line: Line, batons: Mapping[str, Row]) -> Iterator[str]:
    root = batons.get(line["root_id"])
    if root is None:
        yield f"{line['root_id']}: a client was told its end, and it is not there"
    elif line["generation"] == root["generation"] or line["status"] == "completed":
        names = ("status", "result", "error_kind")
        told, stored = [line[name] for name in names], [root[name] for name in names]
        if told != stored:
            yield f"{root['id']}: a client was told {told}, stored is {stored}"


def _epoch_faults(history: Sequence[Line]) -> Iterator[str]:
    """As far as looks at the rows tell: epochs and seqs only grow, and in one epoch there is one owner, or none any more."""
    last: dict[str, Line] = {}
    for line in history:
        if line["kind"] != "seen":
            continue
        before = last.get(line["root_id"])
        if before is not None:
            for name in ("epoch", "seq"):
                if line[name] < before[name]:
                    yield f"{line['root_id']}: its {name} was {before[name]}, then {line[name]}"
            if line["epoch"] == before["epoch"] and line["owner"] not in (before["owner"], None):
                yield f"{line['root_id']}: in epoch {line['epoch']} the owner was {before['owner']}, then {line['owner']}"
        last[line["root_id"]] = line


def _first_difference(told: list[Any], stored: list[Any]) -> str:
    place = next((at for at, (one, other) in enumerate(zip(told, stored, strict=False)) if one != other), len(stored))
    return f"{told[place : place + 2]} where the log has {stored[place : place + 2]}"


# ---------------------------------------------------------------- for people


def story(rows: Recorded, root_id: str, last: int = 30) -> str:
    """The last events of a tree and its batons that live, for a message."""
    events = [event for event in rows.events if event["root_id"] == root_id][-last:]
    live = [baton for baton in rows.batons if baton["root_id"] == root_id and baton["status"] in LIVE]
    tree = next(tree for tree in rows.trees if tree["root_id"] == root_id)
    lines = [
        f"tree {root_id}: {tree['status']}, owner {tree['owner']} ({tree['owner_pid']}), epoch {tree['epoch']}, wake at {tree['wake_at']}"
    ]
    lines += [f"  {each['seq']} {each['at']} {each['type']} {each['baton_id']} #{each['attempt']} {each['data']}" for each in events]
    lines += [f"  live: {each['id']} {each['status']} {each['worker']} attempt {each['attempt']}" for each in live]
    return "\n".join(lines)
