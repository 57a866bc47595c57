"""Agents while they work: what runs, what was used, the answer as it is written; on a terminal, without colour, and in a file."""

import asyncio
import io
import random
import re
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from baton_actors.baton import Baton
from baton_actors.cli import painting
from baton_actors.cli.painting import MAX_TOLD, LinePainter, ended, outcome
from baton_actors.display import LiveTree, Mark, Spent, TreeView, Verdict, layout, plain_line, rich_line, text_lines
from baton_actors.events import Event, EventType, Whisper
from baton_actors.snapshot import Snapshot
from tests.unit.drive import BEGIN, ROOT, Driver
from tests.unit.test_display_view import followed, random_story, snapshot_of

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TEXTS = st.text(st.characters() | st.sampled_from("\x1b[2J\x07\n\t 漢🙂\u200d\u202e"), max_size=120)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def agent(goal: str = "all", **given: Any) -> Driver:
    return Driver(goal=goal, worker="agent", **given)


def round_of(driver: Driver, id: str = ROOT, *, tokens: int = 400, cost: float | None = None, **more: Any) -> None:
    """A model call has ended."""
    used = {"tokens_in": tokens - 12, "tokens_out": 12, "tokens_cached": 5, "cost": cost}
    driver.checkpoint(id, **{"kind": "round", "purpose": "round", "round": 1, "model": "small", **used, **more})


def hear(view: TreeView, kind: str, text: str = "", *, id: str = ROOT, attempt: int = 1, at: int = BEGIN) -> None:
    view.hear(Whisper(id, attempt, kind, text), at)


def lines(view: TreeView, now: int = BEGIN, width: int | None = None) -> list[str]:
    return list(text_lines(view, now, width=width))


def working(driver: Driver, view: TreeView) -> TreeView:
    """The picture with what has happened since."""
    for event in driver.log:
        view.apply(event)
    return view


def drawn(view: TreeView, *, width: int = 80, height: int = 24, colour: bool = True, encoding: str = "utf-8", close: bool = False) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="surrogatepass" if encoding == "utf-8" else "strict")
    console = Console(
        file=stream, force_terminal=True, width=width, height=height, no_color=not colour, color_system="standard", legacy_windows=False
    )
    live = LiveTree(view, lambda: BEGIN + 3_200)
    if close:
        live.close()
    console.print(live)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]  # a BytesIO


# ---------------------------------------------------------------- what the picture knows


def test_what_runs_is_told_with_its_own_time() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    hear(view, "model", "round 2", at=BEGIN + 8_800)
    assert lines(view, BEGIN + 12_000) == ["running   all  12 s  model: round 2 (3.2 s)"]
    hear(view, "tool", "read_file, fetch_url", at=BEGIN + 12_000)
    assert lines(view, BEGIN + 12_000) == ["running   all  12 s  tool: read_file, fetch_… (0.0 s)"]
    hear(view, "idle", at=BEGIN + 12_000)
    assert lines(view, BEGIN + 12_000) == ["running   all  12 s"]


def test_rounds_and_tokens_are_a_batons_own_and_the_roots_line_tells_those_of_all() -> None:
    driver = agent()
    driver.start()
    round_of(driver, cost=0.01)
    driver.spawn(ROOT, "a", "b")
    first, second = driver.baton().children
    driver.start(first, second)
    round_of(driver, first, tokens=12_000, cost=0.0023)
    round_of(driver, first, tokens=345)
    driver.complete(first)
    view = followed(driver)
    assert [view.nodes[id].spent for id in (ROOT, first, second)] == [Spent(1, 400, 0.01), Spent(2, 12_345, 0.0023), Spent()]
    assert view.spent == Spent(3, 12_745, 0.0123)
    assert lines(view) == [
        "spawned   all  1 done · 1 running  0.0 s  3 rounds  12.7k tokens  cost 0.0123",
        "  completed a  0.0 s  2 rounds  12.3k tokens",
        "  running   b  0.0 s",
    ]


def test_no_cost_is_told_when_no_price_is_known() -> None:
    driver = agent()
    driver.start()
    round_of(driver)
    assert lines(followed(driver)) == ["running   all  0.0 s  1 round  400 tokens"]


def test_a_snapshot_and_the_rounds_after_it_are_added_up() -> None:
    driver = agent()
    driver.start()
    stored = snapshot_of(driver)
    used = stored.batons[0].model_copy(
        update={"rounds": 3, "usage": {"tokens_in": 900, "tokens_out": 99, "tokens_cached": 500, "cost": 0.5}}
    )
    view = TreeView.from_snapshot(Snapshot(ROOT, stored.status, stored.seq, [used]))
    assert view.spent == view.nodes[ROOT].spent == Spent(3, 999, 0.5)
    round_of(driver, cost=0.25)
    assert working(driver, view).spent == Spent(4, 1_399, 0.75)


def test_the_last_decision_is_kept_with_its_reason() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    assert view.nodes[ROOT].verdict is None
    driver.checkpoint(kind="decision", breakdown="auto", broken_down=False, reason="fits in one window")
    driver.checkpoint(kind="decision", breakdown="auto", broken_down=True, reason="r" * 10_000)
    verdict = working(driver, view).nodes[ROOT].verdict
    assert verdict == Verdict(True, "r" * 500)


ENDS: list[Callable[[Driver], Any]] = [
    lambda driver: driver.complete(),
    lambda driver: driver.fail(),
    lambda driver: driver.cancel(),
    lambda driver: driver.spawn(ROOT, "a", "b"),
    lambda driver: driver.hand_over(),
    lambda driver: driver.lose(),
]


@pytest.mark.parametrize("end", ENDS)
def test_nothing_runs_under_a_run_that_is_over_whatever_is_still_heard_of_it(end: Callable[[Driver], Any]) -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    hear(view, "model", "round 1")
    hear(view, "text", "Once")
    end(driver)
    working(driver, view)
    for kind in ("idle", "model", "tool", "text"):
        hear(view, kind, "upon a time")
        assert (view.nodes[ROOT].activity, view.answer) == (None, "")


def test_what_is_heard_of_a_run_before_its_start_is_shown_from_its_start_on() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    driver.hand_over()
    driver.start()
    hear(view, "model", "round 2", attempt=2)
    hear(view, "text", "So", attempt=2)
    assert view.nodes[ROOT].activity is None
    activity = working(driver, view).nodes[ROOT].activity
    assert activity is not None
    assert (activity.what, view.answer) == ("model: round 2", "So")
    hear(view, "tool", "late", attempt=1)
    assert (view.nodes[ROOT].activity, view.answer) == (activity, "So")


def test_what_is_heard_before_the_very_creation_is_shown_after_it() -> None:
    driver = agent()
    driver.start()
    view = TreeView(ROOT)
    hear(view, "model", "round 1")
    hear(view, "text", "On")
    hear(view, "text", "ce")
    assert lines(view) == []
    assert lines(working(driver, view)) == ["running   all  0.0 s  model: round 1 (0.0 s)"]
    assert view.answer == "Once"


def test_batons_that_are_never_created_take_bounded_room() -> None:
    view = TreeView(ROOT)
    for n in range(5_000):
        hear(view, "model", "round 1", id=f"bt_{n}")
    for n in range(5_000):
        view.apply(Event(n + 1, EventType.CREATED, BEGIN, ROOT, f"bt_{n}", None, 0, 0, {"goal": "x"}))
    view.apply(Event(5_001, EventType.STARTED, BEGIN, ROOT, "bt_4999", None, 0, 1, {}))
    assert sum(node._activity is not None for node in view.nodes.values()) == 1_000
    assert view.nodes["bt_4999"].activity


def test_whispers_of_unknown_batons_and_kinds_are_no_error() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    hear(view, "model", "round 1", id="bt_unknown")
    hear(view, "alive")
    assert lines(view) == ["running   all  0.0 s"]


# ---------------------------------------------------------------- the answer


def test_the_answer_is_what_the_roots_last_model_call_has_written() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    hear(view, "model", "round 1")
    for piece in ("Let me ", "see", ""):
        hear(view, "text", piece)
    assert view.answer == "Let me see"
    hear(view, "tool", "read_file")
    assert view.answer == ""
    hear(view, "model", "round 2")
    hear(view, "text", "It is")
    hear(view, "idle")
    assert view.answer == "It is"
    hear(view, "model", "round 3")
    assert view.answer == ""


def test_what_children_write_is_no_answer() -> None:
    driver = agent()
    child, _ = driver.breakdown(ROOT, "a", "b")
    driver.start(child)
    view = followed(driver)
    hear(view, "text", "a part", id=child)
    activity = view.nodes[child].activity
    assert activity is not None
    assert (activity.what, view.answer) == ("model", "")


def test_a_new_attempt_does_not_go_on_with_the_text_of_the_one_before() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    hear(view, "text", "Once upon")
    hear(view, "text", "There was", attempt=2)
    assert view.answer == "There was"


def test_a_long_answer_and_a_long_list_of_tools_take_bounded_room() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    for n in range(5_000):
        hear(view, "text", f"{n} and " * 10)
        assert len(view.answer) <= 8_000
    assert view.answer.endswith("4999 and 4999 and ")
    hear(view, "text", "x" * 1_000_000)
    assert len(view.answer) <= 8_000
    hear(view, "tool", "x" * 1_000_000)
    assert len(view.nodes[ROOT].activity.what) <= 120  # type: ignore[union-attr]  # there is one


# ---------------------------------------------------------------- lines


def busy() -> TreeView:
    """A root that broke its task down, of whose children one thinks, one reads, one has ended."""
    driver = agent("Compare the harvests of the last five years and write a report")
    first, second, third = driver.breakdown(ROOT, "Read the tables of five years", "漢字かな交じり文で要約を書いてください", "Check")
    driver.start(first, second, third)
    round_of(driver, first, cost=0.01)
    round_of(driver, second, tokens=12_345, cost=0.01)
    driver.complete(third)
    view = followed(driver)
    hear(view, "model", "round 2", id=first)
    hear(view, "tool", "read_file", id=second)
    return view


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, [
            "spawned   Compare the harvests of the last five years an…  1 done · 2 running  12 s  2 rounds  12.7k tokens  cost 0.0200",
            "  running   Read the tables of five years  12 s  model: round 2 (12 s)  400 tokens",
            "  running   漢字かな交じり文で要約を書いてください  12 s  tool: read_file (12 s)  12.3k tokens",
            "  completed Check  0.0 s",
        ]),
        (80, [
            "spawned   Compare the harv…  1 done · 2 running  12 s  12.7k tokens  cost 0.0200",
            "  running   Read the tables of five ye…  12 s  model: round 2 (12 s)  400 tokens",
            "  running   漢字かな交じり文で要約…  12 s  tool: read_file (12 s)  12.3k tokens",
            "  completed Check  0.0 s",
        ]),
        (60, [
            "spawned   Compare the har…  1 done · 2 running  12.7k tokens",
            "  running   Read the tab…  model: round 2 (12 s)  400 tokens",
            "  running   漢字かな交じり文で要約…  tool: read_file (12 s)",
            "  completed Check  0.0 s",
        ]),
        (24, [
            "spawned   Compare the h…",
            "  running   Read the ta…",
            "  running   漢字かな交…",
            "  completed Check  0.0 s",
        ]),
    ],
)  # fmt: skip
def test_where_room_is_short_the_goal_and_what_runs_are_kept_longest(width: int, shown: list[str]) -> None:
    assert lines(busy(), BEGIN + 12_000, width) == shown


@pytest.mark.parametrize("seed", range(12))
def test_every_line_of_any_story_fits_and_only_what_runs_does_something(seed: int) -> None:
    dice = random.Random(seed)
    driver = random_story(seed)
    view = TreeView(ROOT)
    ids = list(driver.tree.nodes)
    for event in driver.log:
        view.apply(event)
        kind = dice.choice(["model", "tool", "text", "idle"])
        hear(view, kind, dice.choice(["round 1", "漢字" * 40, "\x1b[2J"]), id=dice.choice(ids), attempt=dice.randint(1, 4))
        assert view.answer == "" or not view.ended
    assert all(node.mark is Mark.RUNNING for node in view.nodes.values() if node.activity)
    for width in range(20, 121):
        for line in layout(view):
            assert cell_len(plain_line(line, BEGIN, width=width, ids=dice.random() < 0.5)) <= width
            assert cell_len(rich_line(line, BEGIN, width=width, ids=dice.random() < 0.5).plain) <= width


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["round", "tool", "decision", "dialect", "checkpoint"]), st.data())
def test_what_a_function_tells_in_the_agents_words_breaks_nothing(kind: str, data: st.DataObject) -> None:
    keys = ("round", "purpose", "model", "seconds", "tokens_in", "tokens_out", "cost", "calls", "name", "failed", "reason", "broken_down")
    told = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON)))
    view = TreeView(ROOT)
    view.apply(Event(1, EventType.CREATED, BEGIN, ROOT, ROOT, None, 0, 0, {"goal": "all"}))
    LinePainter(view).apply(Event(2, EventType.PROGRESS, BEGIN, ROOT, ROOT, None, 0, 1, {**told, "kind": kind}))
    assert not CONTROL.search(lines(view)[0])


# ---------------------------------------------------------------- on a terminal


def writing(text: str, goal: str = "all") -> TreeView:
    """A root that writes its answer."""
    driver = agent(goal)
    driver.start()
    view = followed(driver)
    hear(view, "model", "round 1")
    hear(view, "text", text)
    return view


def test_the_answer_stands_below_the_tree_and_is_gone_when_it_is_printed() -> None:
    view = writing("# Harvests\n\n- 漢字\n    rice")
    tree = "running   all  3.2 s  model: round 1 (3.2 s)\n"
    assert drawn(view, colour=False) == f"{tree}│ # Harvests\n│ \n│ - 漢字\n│     rice\n"
    assert drawn(view, colour=False, close=True) == tree


def test_the_answer_has_a_third_of_the_height_and_its_end_is_shown() -> None:
    view = writing("\n".join(f"line {n}" for n in range(100)))
    for height, most in ((24, 7), (8, 2), (3, 0)):
        rows = drawn(view, height=height, colour=False).splitlines()
        assert rows[1:] == [f"│ line {n}" for n in range(100 - most, 100)]


def test_a_large_tree_and_an_answer_share_the_height() -> None:
    driver = agent(check_every=1_000)
    for child in driver.breakdown(ROOT, *(f"part {n}" for n in range(60))):
        driver.start(child)
        driver.fail(child)
    driver.start()
    view = followed(driver)
    hear(view, "text", "漢字\n" * 50, attempt=2)
    for height in (8, 24):
        rows = drawn(view, height=height, colour=False).splitlines()
        assert len(rows) <= height - 1
        assert rows[0].startswith("running   all  60 failed")
        assert sum(row.startswith("│") for row in rows) == (height - 1) // 3


def test_lines_stay_as_they_were_wrapped_while_more_is_written() -> None:
    driver = agent()
    driver.start()
    view = followed(driver)
    before: list[str] = []
    for n in range(80):
        hear(view, "text", f"word{n} and ")
        rows = drawn(view, width=40, height=40, colour=False).splitlines()[1:]
        assert before[:-1] == rows[: len(before) - 1] or before[1:-1] == rows[: len(before) - 2]
        before = rows


@settings(max_examples=80, deadline=None)
@given(TEXTS, TEXTS, TEXTS, st.integers(20, 120), st.integers(2, 30), st.sampled_from(["colour", "words", "ascii"]))
def test_whatever_a_model_writes_fits_and_does_nothing_to_the_terminal(
    goal: str, what: str, answer: str, width: int, height: int, looks: str
) -> None:
    view = writing(answer, goal=f"g{goal}".replace("\x00", "").encode(errors="replace").decode())
    hear(view, "model", what)
    hear(view, "text", answer)
    picture = drawn(view, width=width, height=height, colour=looks == "colour", encoding="ascii" if looks == "ascii" else "utf-8")
    if looks == "colour":
        picture = re.sub(r"\x1b\[[0-9;]*m", "", picture)
    assert not CONTROL.search(picture)
    rows = picture.removesuffix("\n").split("\n")
    assert len(rows) <= max(1, height - 1)
    assert all(cell_len(row) <= width for row in rows)


def test_an_escape_sequence_is_harmless_even_when_it_comes_in_pieces() -> None:
    view = writing("\x1b")
    hear(view, "text", "]0;title")
    hear(view, "text", "\x07\x9b2J\r\nnext")
    assert drawn(view, colour=False).splitlines()[1:] == ["│ �]0;title��2J", "│ next"]


def test_a_terminal_that_knows_ascii_only_gets_nothing_else() -> None:
    rows = drawn(writing("naïve 漢字…", goal="漢字 " * 60), encoding="ascii").splitlines()
    assert rows[0].startswith("running   ?? ?? ")
    assert rows[1] == "| na?ve ??~"


def test_colours_tell_what_runs_from_what_was_used() -> None:
    picture = drawn(writing("Once"))
    assert "\x1b[36m  model: round 1 (3.2 s)\x1b[0m" in picture
    assert "\x1b[2m│ \x1b[0mOnce" in picture


# ---------------------------------------------------------------- painting


class Played:
    """A tree whose events and whispers are played to whoever follows it; `wait` returns when all has been."""

    id = ROOT

    def __init__(self, driver: Driver, whispers: list[Whisper]) -> None:
        self.driver = driver
        self.whispers = whispers
        self.asked: list[bool] = []
        self._played = threading.Event()

    def wait(self, timeout: float | None = None) -> Baton:
        assert self._played.wait(30)
        return self.driver.baton()

    async def events(self, after: int = 0, beside: Callable[[Whisper], None] | None = None) -> AsyncIterator[Event]:
        self.asked.append(beside is not None)
        for event in self.driver.log[after:]:
            yield event
        for whisper in self.whispers if beside else ():
            assert beside is not None
            beside(whisper)
        self._played.set()
        await asyncio.Event().wait()  # the end of the tree is not heard of

    def snapshot(self) -> Snapshot:
        return snapshot_of(self.driver)


def test_on_a_terminal_the_answer_is_left_off_the_last_picture_even_if_the_end_was_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = agent()
    driver.start()
    round_of(driver)
    tree = Played(driver, [Whisper(ROOT, 1, "model", "round 2"), Whisper(ROOT, 1, "text", "Once upon a time")])
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24, color_system="standard", legacy_windows=False)
    monkeypatch.setattr(painting, "error_console", lambda: console)
    monkeypatch.setattr(painting, "CATCH_UP", 0.2)
    ended(tree, None)
    last = ESCAPE.sub("", stream.getvalue().rpartition("\x1b[2K")[2])
    assert tree.asked == [True]
    assert last.startswith("● all  ")
    assert "400 tokens" in last
    assert "Once" not in last


def test_off_a_terminal_whispers_are_not_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = agent()
    driver.start()
    tree = Played(driver, [Whisper(ROOT, 1, "text", "Once")])
    monkeypatch.setattr(painting, "CATCH_UP", 0.2)
    ended(tree, None)
    assert tree.asked == [False]
    assert capsys.readouterr().err == "started     all\n"


def told(driver: Driver, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is said of a driven tree off a terminal."""
    painter = LinePainter(TreeView(ROOT))
    for event in driver.log:
        painter.apply(event)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_off_a_terminal_each_step_of_an_agent_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    driver = agent("compare")
    driver.start()
    round_of(driver, purpose="judgement", seconds=0.8, cost=0.01)
    driver.checkpoint(kind="decision", breakdown="auto", broken_down=True, reason="two independent parts")
    driver.spawn(ROOT, "a", "b")
    first, second = driver.baton().children
    driver.start(first)
    driver.checkpoint(first, kind="decision", breakdown="auto", broken_down=False, reason="estimated at one round")
    round_of(driver, first, seconds=3.24, tokens=12_345, calls=["read_file"])
    driver.checkpoint(first, kind="tool", name="read_file", seconds=0.2, failed=False)
    driver.checkpoint(first, kind="tool", name="fetch_url", seconds=20.0, failed=True)
    driver.checkpoint(first, kind="dialect", model="small", dialect="actions", reason="no tools")
    driver.complete(first)
    driver.run(second)
    driver.start()
    round_of(driver, round=2, seconds=2.0, cost=0.02)
    driver.complete()
    assert told(driver, capsys) == [
        "started     compare",
        "judgement   compare  0.8 s  400 tokens  cost 0.0100",
        "decided     compare: broken down into parts (two independent parts)",
        "spawned     compare  2 children",
        "started     a",
        "decided     a: not broken down (estimated at one round)",
        "round 1     a  3.2 s  12.3k tokens",
        "tool        a  read_file  0.2 s",
        "tool        a  fetch_url  20 s  failed",
        "completed   a  0.0 s  1 round  12.3k tokens",
        "started     b",
        "completed   b  0.0 s",
        "resumed     compare",
        "started     compare",
        "round 2     compare  2.0 s  400 tokens  cost 0.0200",
        "completed   compare  0.0 s  3 rounds  13.1k tokens  cost 0.0300",
    ]


def test_what_is_said_of_a_step_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "two\nlines \x1b[2J\x07" + "x" * 5_000
    driver = agent(evil)
    driver.start()
    round_of(driver, purpose=evil, seconds=1.0)
    driver.checkpoint(kind="decision", broken_down=True, reason=evil)
    driver.checkpoint(kind="tool", name=evil, seconds=1.0)
    said = told(driver, capsys)
    assert [line.split()[0] for line in said] == ["started", "two", "decided", "tool"]
    assert not any(CONTROL.search(line) for line in said)
    assert all(len(line) < 1_000 for line in said)


def test_of_a_large_tree_only_counts_and_what_it_used_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver(goal="all", check_every=1_000)
    children = driver.breakdown(ROOT, *(f"part {n}" for n in range(MAX_TOLD)))
    for child in children:
        driver.start(child)
        round_of(driver, child, seconds=1.0, cost=0.001)
        driver.complete(child)
    driver.run(ROOT)
    lines = told(driver, capsys)
    assert lines[-1] == f"{MAX_TOLD + 1} batons: {MAX_TOLD + 1} done  {MAX_TOLD} rounds  80.0k tokens  cost 0.2000"
    assert not any(line.startswith(("round", "completed")) for line in lines)


def test_the_outcome_adds_up_rounds_and_usage() -> None:
    driver = agent()
    children = driver.breakdown(ROOT, "a", "b")
    driver.run(*children, ROOT)
    stored = snapshot_of(driver)
    used = [baton.model_copy(update={"rounds": n, "usage": {"tokens_in": 10.0 * n}}) for n, baton in enumerate(stored.batons)]

    class Ended(Played):
        def snapshot(self) -> Snapshot:
            return Snapshot(ROOT, stored.status, stored.seq, used)

    summary = outcome(Ended(driver, []), driver.baton())
    assert (summary["rounds"], summary["usage"]) == (3, {"tokens_in": 30})
