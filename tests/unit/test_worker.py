"""A worker process at work, its owner played by the test: what a function's end is reported as, and how a run goes."""

import asyncio
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError

from baton_actors.baton import Baton, Child, Completed, ErrorKind, Failed, HandedOver, Spawned, Status
from baton_actors.errors import Retry
from baton_actors.machine import ERROR_CHARACTERS
from baton_actors.runtime import worker
from baton_actors.runtime.wire import Instructions, WireReport, command
from baton_actors.runtime.worker import LONGEST_WAIT_SECONDS, WorkerRun
from tests.unit.owning import in_loop
from tests.unit.working import LEASE, PlayedOwner, assignment, baton


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of worker functions."""
    module = types.ModuleType("work")
    monkeypatch.setitem(sys.modules, "work", module)
    return module


async def run_once(function: Callable[..., Any], given: Baton | None = None, **more: Any) -> WireReport:
    """The report of one assignment in a process of its own."""
    sys.modules["work"].run = function  # type: ignore[attr-defined]
    owner = PlayedOwner()
    owner.give(end=True)
    await asyncio.wait_for(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(given or baton(), **more)])), 10)  # type: ignore[arg-type]
    [report] = owner.reports
    command(report, 0, 0.0)  # the owner can read it
    cloudpickle.loads(cloudpickle.dumps(report))
    return report


def raising(error: BaseException) -> Callable[..., Any]:
    def run(baton: Baton, ctx: Any) -> Any:
        raise error

    return run


# ---------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("value", "report"),
    [
        (None, (None, False)),
        ({"a": [1, "名前", 2.5, None, True]}, ({"a": [1, "名前", 2.5, None, True]}, False)),
        ((1, (2, 3)), ([1, [2, 3]], False)),
        (Completed(7), (7, False)),
        (Completed("so far", partial=True), ("so far", True)),
        (Completed(1, None), (1, False)),  # type: ignore[arg-type]
        (Status.FAILED, ("failed", False)),
    ],
)
@in_loop
async def test_a_value_is_a_result(work: Any, value: Any, report: tuple[Any, ...]) -> None:
    assert await run_once(lambda baton, ctx: value) == ("completed", "bt_0", 1, *report)


NOT_JSON: list[tuple[Any, str]] = [
    (float("nan"), "result: nan"),
    ({"a": [0, float("inf")]}, r"result.a[1]: inf"),
    ("\udc88", "result: has a lone surrogate"),
    ({"a": "\x00"}, "result.a: has a NUL"),
    (b"bytes", "result: builtins.bytes is not JSON"),
    ({1: 2}, "result: key 1 is int"),
    ({"a": {1, 2}}, "result.a: builtins.set"),
    (baton(), "result: baton_actors.baton.Baton"),
    (10**5_000, "result: is an integer of"),
    ([10**5_000], "result[0]: is an integer of"),
    (Completed({"when": object()}), "result.when: builtins.object"),
    (HandedOver(b"x"), "state: builtins.bytes"),
    (Spawned([], state={"a": b"x"}), "state.a: builtins.bytes"),
    (Spawned(["not a child"]), "children[0]: str is no Child"),  # type: ignore[list-item]
    (Spawned([Child("a"), Child(" ")]), "children[1].goal"),
    (Spawned([Child("a", {"when": object()})]), "children[0].context.when"),
]


@pytest.mark.parametrize(("value", "path"), NOT_JSON, ids=[path for _, path in NOT_JSON])
@in_loop
async def test_what_is_not_json_fails_with_its_path(work: Any, value: Any, path: str) -> None:
    """D1, D2: the parent is not left waiting."""
    kind, _, _, error, error_kind, retryable, _ = await run_once(lambda baton, ctx: value)
    assert (kind, error_kind, retryable) == ("failed", "invalid_result", False)
    assert error.startswith(path)


@in_loop
async def test_a_value_that_contains_itself_fails(work: Any) -> None:
    """D1."""
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert (await run_once(lambda baton, ctx: loop))[3:5] == ("result.loop: contains itself; JSON has no cycles", "invalid_result")


@pytest.mark.parametrize(
    ("failed", "report"),
    [
        (Failed("no"), ("no", "error", False, None)),
        (Failed("no", ErrorKind.REFUSED), ("no", "refused", False, None)),
        (Failed("no", retryable=True, after=3), ("no", "error", True, 3.0)),
        (Failed("no", kind="timeout"), ("no", "timeout", False, None)),  # type: ignore[arg-type]
        (Failed("no", kind="nonsense"), ("no", "error", False, None)),  # type: ignore[arg-type]
        (Failed("no", kind=None), ("no", "error", False, None)),  # type: ignore[arg-type]
        (Failed(42), ("42", "error", False, None)),  # type: ignore[arg-type]
        (Failed("a\x00b\udc88"), ("a\\x00b?", "error", False, None)),
        (Failed("no", retryable=1), ("no", "error", True, None)),  # type: ignore[arg-type]
    ],
)
@in_loop
async def test_a_failure_is_reported_as_it_is_meant(work: Any, failed: Failed, report: tuple[Any, ...]) -> None:
    assert await run_once(lambda baton, ctx: failed) == ("failed", "bt_0", 1, *report)


@in_loop
async def test_a_long_error_is_cut(work: Any) -> None:
    report = await run_once(lambda baton, ctx: Failed("x" * 1_000_000))
    assert len(report[3]) == ERROR_CHARACTERS


@in_loop
async def test_a_breakdown_carries_its_children_their_code_and_its_state(work: Any) -> None:
    def part(baton: Baton, ctx: Any) -> int:
        return 1

    children = [Child("a"), Child("b", {"n": 2}, worker=part, max_retries=3, hold=True), Child("c", worker=part)]
    kind, _, _, specs, state, code = await run_once(lambda baton, ctx: Spawned(children, state=[1]))
    [name] = code
    assert (kind, state) == ("spawned", [1])
    assert specs == [
        {"goal": "a"},
        {"goal": "b", "context": {"n": 2}, "constraints": {"max_retries": 3}, "worker": f"code:{name}", "held": True},
        {"goal": "c", "worker": f"code:{name}"},
    ]
    assert cloudpickle.loads(code[name])(None, None) == 1


@in_loop
async def test_a_breakdown_into_nothing_is_one(work: Any) -> None:
    assert await run_once(lambda baton, ctx: Spawned([])) == ("spawned", "bt_0", 1, [], None, {})


@in_loop
async def test_a_closed_window_hands_its_state_over(work: Any) -> None:
    assert await run_once(lambda baton, ctx: HandedOver({"round": 3})) == ("handed_over", "bt_0", 1, {"round": 3})


# ---------------------------------------------------------------- exceptions


class Broken(Exception):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


class KeywordOnly(Exception):
    """It cannot be rebuilt from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


class Unpicklable(Exception):
    """It cannot travel."""

    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


class Base(Exception):
    """What a constraint may name."""


class Derived(Base):
    """One of its kind."""


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (Broken(), "Broken: (its message cannot be shown)"),
        (KeywordOnly(code=3), "KeywordOnly: code 3"),
        (Unpicklable(), "Unpicklable: it holds a lock"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (ExceptionGroup("many", [ValueError("no")]), "ExceptionGroup: many (1 sub-exception)"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode"),
    ],
)
@in_loop
async def test_an_exception_is_a_failure_with_its_type_its_message_and_its_place(work: Any, error: BaseException, first: str) -> None:
    """A6: it travels as text."""
    kind, _, _, text, error_kind, retryable, after = await run_once(raising(error))
    assert (kind, error_kind, retryable, after) == ("failed", "error", False, None)
    assert text.splitlines()[0].startswith(first)
    assert "in run" in text
    assert "raise error" in text
    assert "runtime/worker.py" not in text


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (None, None),
        (2, 2.0),
        ("5", 5.0),
        (-1, 0.0),
        (0, 0.0),
        (1e18, LONGEST_WAIT_SECONDS),
        (float("inf"), LONGEST_WAIT_SECONDS),
        (float("nan"), 0.0),
        ("soon", None),
        ([1], None),
        (object(), None),
    ],
)
@in_loop
async def test_a_worker_that_asks_to_be_retried_says_when_and_nonsense_leaves_it_to_the_backoff(
    work: Any, after: Any, expected: float | None
) -> None:
    report = await run_once(raising(Retry("try me again", after)))
    assert report == ("failed", "bt_0", 1, "try me again", "error", True, expected)


@pytest.mark.parametrize(
    ("names", "retryable"),
    [
        (["Derived"], True),
        (["Base"], True),
        ([f"{__name__}.Derived"], True),
        ([f"{__name__}.Base"], True),
        (["builtins.Exception"], True),
        (["Other"], False),
        (["elsewhere.Derived"], False),
        ([], False),
    ],
)
@in_loop
async def test_exceptions_that_the_constraints_name_are_retryable(work: Any, names: list[str], retryable: bool) -> None:
    report = await run_once(raising(Derived("no")), baton(retry_on=names))
    assert report[5] is retryable


# ---------------------------------------------------------------- how functions are run


@pytest.mark.parametrize("kind", ["sync", "async", "sync that returns an awaitable", "object"])
@in_loop
async def test_functions_of_every_kind_are_run(work: Any, kind: str) -> None:
    def plain(baton: Baton, ctx: Any) -> int:
        return 1

    async def waiting(baton: Baton, ctx: Any) -> int:
        await asyncio.sleep(0)
        return 1

    def lazy(baton: Baton, ctx: Any) -> Awaitable[int]:
        return waiting(baton, ctx)

    class Thing:
        def __call__(self, baton: Baton, ctx: Any) -> int:
            return 1

    functions = {"sync": plain, "async": waiting, "sync that returns an awaitable": lazy, "object": Thing()}
    assert await run_once(functions[kind]) == ("completed", "bt_0", 1, 1, False)


@in_loop
async def test_an_async_function_that_raises_is_a_failure(work: Any) -> None:
    async def run(baton: Baton, ctx: Any) -> None:
        raise SystemExit("leaving")

    assert (await run_once(run))[3].startswith("SystemExit: leaving")


@in_loop
async def test_an_async_function_that_is_cancelled_by_itself_is_a_failure(work: Any) -> None:
    async def run(baton: Baton, ctx: Any) -> None:
        raise asyncio.CancelledError

    assert (await run_once(run))[3].startswith("CancelledError")


@in_loop
async def test_a_function_is_given_what_its_baton_knows(work: Any) -> None:
    given = baton(attempt=3, generation=2, deadline=99, context={"n": 1})
    child = ("bt_9", "part", "completed", 7, None, None)
    seen: list[Any] = []

    def run(baton: Baton, ctx: Any) -> None:
        seen.extend([baton, ctx.children, ctx.breakdown, ctx.state, ctx.attempt, ctx.deadline, ctx.idempotency_key, ctx.cancelled])

    await run_once(run, given, breakdown=1, state={"parts": 1}, children=[child])
    assert seen[0] == given
    [result] = seen[1]
    assert (result.id, result.goal, result.status, result.result) == ("bt_9", "part", "completed", 7)
    assert seen[2:] == [1, {"parts": 1}, 3, 99, "bt_0:2:1", False]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("work:nothing", "worker work:nothing cannot be loaded: InvalidInput: worker: module 'work' has no 'nothing'"),
        ("work_nowhere:run", "worker work_nowhere:run cannot be loaded: InvalidInput: worker: no module 'work_nowhere'"),
        ("code:" + "0" * 64, "cannot be loaded: KeyError"),
    ],
)
@in_loop
async def test_a_worker_that_cannot_be_loaded_is_one_clear_failure(work: Any, reference: str, words: str) -> None:
    """D2."""
    kind, _, _, error, *_ = await run_once(lambda baton, ctx: None, baton(work=reference))
    assert kind == "failed"
    assert words in error


@in_loop
async def test_a_function_whose_bytes_cannot_be_read_is_one_clear_failure(work: Any) -> None:
    owner = PlayedOwner()
    owner.give(end=True)
    name = "0" * 64
    await WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton(work=f"code:{name}"))], {name: b"nonsense"}))  # type: ignore[arg-type]
    [(kind, _, _, error, *_)] = owner.reports
    assert (kind, "cannot be loaded" in error) == ("failed", True)


# ---------------------------------------------------------------- a run


@in_loop
async def test_batons_of_one_run_go_side_by_side_and_what_is_ready_goes_in_one_call(work: Any) -> None:
    gate = threading.Barrier(4)

    def sync(baton: Baton, ctx: Any) -> str:
        gate.wait(10)
        return baton.id

    async def waiting(baton: Baton, ctx: Any) -> str:
        await asyncio.to_thread(gate.wait, 10)
        return baton.id

    work.sync, work.waiting = sync, waiting
    owner = PlayedOwner()
    owner.give(end=True)
    given = [baton(0, "work:sync"), baton(1, "work:sync"), baton(2, "work:waiting"), baton(3, "work:waiting")]
    await WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(each) for each in given]))  # type: ignore[arg-type]
    assert sorted(report[1] for report in owner.reports) == ["bt_0", "bt_1", "bt_2", "bt_3"]
    assert [number for number, _ in owner.calls] == list(range(1, len(owner.calls) + 1))


@in_loop
async def test_reports_that_come_while_a_call_is_under_way_go_with_the_next(work: Any) -> None:
    work.run = lambda baton, ctx: baton.id
    owner = PlayedOwner()
    owner.gate = asyncio.Event()
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton(0))])))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    owner.give(*(assignment(baton(number)) for number in range(1, 20)))
    await asyncio.sleep(0.03)
    owner.gate.set()
    owner.give(end=True)
    await main
    assert [number for number, _ in owner.calls] == list(range(1, len(owner.calls) + 1))
    assert len(owner.calls) <= 3
    assert len(owner.reports) == 20


@in_loop
async def test_a_call_holds_so_many_reports_and_no_more(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "REPORTS_A_CALL", 3)

    async def run(baton: Baton, ctx: Any) -> None:
        for step in range(10):
            ctx.checkpoint(step)

    work.run = run
    owner = PlayedOwner()
    owner.give(end=True)
    await WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())]))  # type: ignore[arg-type]
    assert [len(reports) for _, reports in owner.calls] == [3, 3, 3, 2]
    assert [report[0] for report in owner.reports] == ["checkpoint"] * 10 + ["completed"]


@in_loop
async def test_instructions_are_acknowledged_by_their_number_and_followed_in_order(work: Any) -> None:
    work.run = lambda baton, ctx: baton.goal
    owner = PlayedOwner()
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton(0))])))  # type: ignore[arg-type]
    await owner.reported(1)
    name = "0" * 64
    owner.give(assignment(baton(1, f"code:{name}")), code={name: cloudpickle.dumps(lambda baton, ctx: "by value")})
    await owner.reported(2)
    owner.give(assignment(baton(2, f"code:{name}")))
    await owner.reported(3)
    owner.give(end=True)
    await main
    assert owner.asked == [1, 2, 3]
    assert [report[3] for report in owner.reports] == ["all", "by value", "by value"]


@in_loop
async def test_an_end_waits_for_what_is_at_work_and_for_its_report(work: Any) -> None:
    gate = threading.Event()

    def run(baton: Baton, ctx: Any) -> str:
        assert gate.wait(10)
        return "to the end"

    work.run = run
    owner = PlayedOwner()
    owner.give(end=True)
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())])))  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    assert not main.done()
    gate.set()
    await asyncio.wait_for(main, 10)
    assert [report[3] for report in owner.reports] == ["to the end"]


@in_loop
async def test_a_run_with_nothing_to_do_ends_when_it_is_told_to(work: Any) -> None:
    owner = PlayedOwner()
    run = WorkerRun(owner, LEASE, None, {})  # type: ignore[arg-type]
    await asyncio.wait_for(run.main(Instructions(1, end=True)), 10)
    assert owner.calls == []
    assert not run.busy


@in_loop
async def test_a_checkpoint_is_sent_at_once_and_before_the_outcome(work: Any) -> None:
    gate = threading.Event()

    def run(baton: Baton, ctx: Any) -> str:
        ctx.checkpoint({"step": 1}, rounds=2)
        assert gate.wait(10)
        ctx.checkpoint((1, 2))
        return "done"

    work.run = run
    owner = PlayedOwner()
    owner.give(end=True)
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())])))  # type: ignore[arg-type]
    await owner.reported(1)
    assert owner.reports == [("checkpoint", "bt_0", 1, {"step": 1}, {"rounds": 2})]
    gate.set()
    await main
    assert [report[0] for report in owner.reports] == ["checkpoint", "checkpoint", "completed"]
    assert owner.reports[1][3] == [1, 2]


@in_loop
async def test_a_checkpoint_that_is_not_json_raises_where_it_is_made(work: Any) -> None:
    def run(baton: Baton, ctx: Any) -> str:
        try:
            ctx.checkpoint({"when": object()})
        except ValueError as error:
            return str(error)
        return "no error"

    assert (await run_once(run))[3].startswith("state.when: builtins.object is not JSON")


# ---------------------------------------------------------------- stops


@pytest.mark.parametrize("kind", ["sync", "async"])
@in_loop
async def test_what_is_stopped_is_told_and_its_outcome_is_not_sent(work: Any, kind: str) -> None:
    """C2."""
    heard = threading.Event()

    def sync(baton: Baton, ctx: Any) -> str:
        while not ctx.cancelled:
            heard.wait(0.001)
        heard.set()
        return "late"

    async def waiting(baton: Baton, ctx: Any) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.cancelled
            heard.set()
        return "late"

    work.run = sync if kind == "sync" else waiting
    owner = PlayedOwner()
    run = WorkerRun(owner, LEASE, None, {})  # type: ignore[arg-type]
    main = asyncio.create_task(run.main(Instructions(1, [assignment(baton())])))
    await asyncio.sleep(0.01)
    owner.give(stops=[("bt_0", 1)])
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert heard.is_set()
    assert owner.calls == []
    assert not run.busy


@in_loop
async def test_a_stop_is_for_one_attempt_of_one_baton(work: Any) -> None:
    gate = threading.Event()

    def run(baton: Baton, ctx: Any) -> bool:
        assert gate.wait(10)
        return bool(ctx.cancelled)

    work.run = run
    owner = PlayedOwner()
    given = [assignment(baton(0, attempt=2)), assignment(baton(1))]
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, given)))  # type: ignore[arg-type]
    owner.give(stops=[("bt_0", 1), ("bt_1", 2), ("bt_9", 1)], end=True)
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.wait_for(main, 10)
    assert sorted(report[1:4] for report in owner.reports) == [("bt_0", 2, False), ("bt_1", 1, False)]


@in_loop
async def test_a_later_attempt_runs_beside_a_stopped_one_that_does_not_listen(work: Any) -> None:
    gate = threading.Event()

    def run(baton: Baton, ctx: Any) -> int:
        if baton.attempt == 1:
            assert gate.wait(10)
        return baton.attempt

    work.run = run
    owner = PlayedOwner()
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton(0))])))  # type: ignore[arg-type]
    owner.give(assignment(baton(0, attempt=2)), stops=[("bt_0", 1)])
    await owner.reported(1)
    gate.set()
    owner.give(end=True)
    await asyncio.wait_for(main, 10)
    assert owner.reports == [("completed", "bt_0", 2, 2, False)]


@pytest.mark.parametrize("by", ["instructions", "report"])
@in_loop
async def test_a_run_whose_tree_has_moved_stops_all_and_ends_at_once(work: Any, by: str) -> None:
    """It does not wait for a function that does not listen; its process is then ended."""
    gate, stopped = threading.Event(), threading.Event()

    def deaf(baton: Baton, ctx: Any) -> None:
        assert gate.wait(10)

    async def waiting(baton: Baton, ctx: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    work.deaf, work.waiting, work.quick = deaf, waiting, lambda baton, ctx: "quick"
    owner = PlayedOwner()
    given = [baton(0, "work:deaf"), baton(1, "work:waiting")]
    if by == "report":
        owner.accepts = False
        given.append(baton(2, "work:quick"))
    run = WorkerRun(owner, LEASE, None, {})  # type: ignore[arg-type]
    main = asyncio.create_task(run.main(Instructions(1, [assignment(each) for each in given])))
    if by == "report":
        await owner.reported(1)
    owner.give(moved=True)
    try:
        await asyncio.wait_for(main, 10)
        assert run.busy, "a thread still runs"
        assert stopped.is_set()
        assert [report[3] for report in owner.reports] == (["quick"] if by == "report" else [])
    finally:
        gate.set()


@in_loop
async def test_calls_that_an_owner_could_not_take_are_made_again_with_the_same_number(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RESEND_SECONDS", 0.001)
    work.run = lambda baton, ctx: "done"
    owner = PlayedOwner()
    owner.faults = [ActorUnavailableError("the node is away", None) for _ in range(5)]
    owner.give(end=True)
    await asyncio.wait_for(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())])), 10)  # type: ignore[arg-type]
    assert owner.calls == [(1, [("completed", "bt_0", 1, "done", False)])]
    assert owner.asked == [1]


@in_loop
async def test_what_is_handed_out_and_stopped_in_one_answer_is_not_run(work: Any) -> None:
    """C1: it was cancelled between two calls for instructions."""
    ran: list[str] = []
    work.run = lambda baton, ctx: ran.append(baton.id)
    owner = PlayedOwner()
    owner.give(assignment(baton(0)), assignment(baton(1)), stops=[("bt_0", 1)])
    owner.give(end=True)
    await asyncio.wait_for(WorkerRun(owner, LEASE, None, {}).main(Instructions(1)), 10)  # type: ignore[arg-type]
    assert ran == ["bt_1"]
    assert [report[1] for report in owner.reports] == ["bt_1"]


@pytest.mark.parametrize(("error", "text", "after"), [(Retry("again", 10**400), "again", None), (Retry(Broken()), "", None)])  # type: ignore[arg-type]
@in_loop
async def test_a_strange_wish_to_be_retried_is_a_failure_and_not_a_silence(work: Any, error: Retry, text: str, after: None) -> None:
    sys.modules["work"].run = raising(error)  # type: ignore[attr-defined]
    owner = PlayedOwner()
    owner.give(end=True)
    main = asyncio.create_task(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())])))  # type: ignore[arg-type]
    await asyncio.wait_for(main, 2)
    [report] = owner.reports
    assert (report[0], report[3].startswith(text), report[6]) == ("failed", True, after)


class Unprepared(Retry):
    """A subclass that does not call its parent's constructor."""

    def __init__(self) -> None:
        pass


@in_loop
async def test_a_subclass_of_retry_that_was_not_prepared_is_retried(work: Any) -> None:
    sys.modules["work"].run = raising(Unprepared())  # type: ignore[attr-defined]
    owner = PlayedOwner()
    owner.give(end=True)
    await asyncio.wait_for(WorkerRun(owner, LEASE, None, {}).main(Instructions(1, [assignment(baton())])), 2)  # type: ignore[arg-type]
    [report] = owner.reports
    assert (report[0], report[5]) == ("failed", True)
