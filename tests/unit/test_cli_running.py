"""`run`, `submit`, `answer`, `cancel`, `retry` and `resume` towards a client; here one that works on a driven tree."""

import asyncio
import json
import sys
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from baton_actors.baton import Baton, Status
from baton_actors.cli.app import execute
from baton_actors.cli.output import data_only, print_json
from baton_actors.errors import ClusterUnusable, NotAllowed, WaitTimeout
from baton_actors.events import Event, Whisper
from baton_actors.snapshot import Snapshot
from tests.unit.drive import ROOT, Driver
from tests.unit.stored import sqlite_url, store_tree
from tests.unit.test_display_view import snapshot_of

WORKER = ["--worker", "baton_actors.examples.arithmetic:square"]


class Events:
    def __init__(self, driver: Driver, after: int) -> None:
        self.driver = driver
        self.after = after

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.driver.log[self.after :]:
            yield event
        if self.driver.status() not in (Status.COMPLETED, Status.FAILED):
            await asyncio.Event().wait()  # as a real stream does: it ends with the tree only


class FakeTree:
    """A handle of a driven tree; `waits` is called when it is waited for."""

    def __init__(self, driver: Driver, waits: Callable[[], None] = lambda: None) -> None:
        self.id = ROOT
        self.driver = driver
        self.waits = waits
        self.asked: list[tuple[Any, ...]] = []

    def wait(self, timeout: float | None = None) -> Baton:
        waits, self.waits = self.waits, lambda: None
        waits()
        if self.driver.status() not in (Status.COMPLETED, Status.FAILED):
            raise WaitTimeout(ROOT, timeout or 0)
        return self.driver.baton()

    def events(self, after: int = 0, beside: Callable[[Whisper], None] | None = None) -> Events:
        return Events(self.driver, after)

    def snapshot(self) -> Snapshot:
        return snapshot_of(self.driver)

    def cancel(self, reason: str, baton_id: str | None = None) -> None:
        self.asked.append(("cancel", reason, baton_id))
        self.driver.cancel(baton_id or ROOT, reason)

    def answer(self, baton_id: str, value: Any) -> None:
        self.asked.append(("answer", baton_id, value))
        self.driver.answer(baton_id, value)

    def retry(self, baton_id: str, budget: Any = None) -> None:
        self.asked.append(("retry", baton_id, budget))
        raise NotAllowed(baton_id, "is completed; only a failed one can be retried")


class FakeClient:
    """What `connect` gives; it remembers what was asked of it."""

    def __init__(self, tree: FakeTree) -> None:
        self.tree = tree
        self.private = True
        self.submitted: dict[str, Any] = {}
        self.connected: dict[str, Any] = {}
        self.closed = False

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def hand_in(self, task: dict[str, Any]) -> FakeTree:
        self.submitted = task
        return self.tree

    def get(self, id: str) -> FakeTree:
        return self.tree

    def resume(self, id: str | None, progress: Any = None) -> list[FakeTree]:
        return [self.tree] if self.tree.driver.tree.nodes else []


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("BATON_DATABASE_URL", sqlite_url(tmp_path))
    return sqlite_url(tmp_path)


def replace_client(monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Any]) -> None:
    """Stand in for `baton_actors.client`, which imports Ray."""

    def prepared(settings: Any, goal: str, progress: Any, **fields: Any) -> dict[str, Any]:
        return {"goal": goal, **{name: value for name, value in fields.items() if value is not None}}

    module = types.ModuleType("baton_actors.client")
    module.connect = connect  # type: ignore[attr-defined]
    module.prepared = prepared  # type: ignore[attr-defined]
    module.introduction = lambda task: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "baton_actors.client", module)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeTree], FakeClient]:
    """Let `connect` give a client of this tree."""

    def use(tree: FakeTree) -> FakeClient:
        client = FakeClient(tree)

        def connect(*, progress: Callable[[str], None], **given: Any) -> FakeClient:
            progress("starting Ray")
            client.connected = given
            return client

        replace_client(monkeypatch, connect)
        return client

    return use


Serve = Callable[[FakeTree], FakeClient]
Captured = pytest.CaptureFixture[str]


def completed(value: Any) -> Driver:
    driver = Driver()
    driver.run(ROOT, value=value)
    return driver


def failed(error: str) -> Driver:
    driver = Driver()
    driver.start()
    driver.fail(error=error)
    return driver


@pytest.mark.parametrize(
    ("value", "printed"),
    [("a text\nas it is\x1b", "a text\nas it is\x1b\n"), ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}\n'), (None, "null\n")],
)
def test_a_result_is_the_only_thing_on_standard_output(value: Any, printed: str, serve: Serve, capsys: Captured) -> None:
    client = serve(FakeTree(completed(value)))
    assert execute(["run", "count", *WORKER]) == 0
    assert capsys.readouterr().out == printed
    assert client.closed


def test_off_a_terminal_each_change_is_a_plain_line(serve: Serve, capsys: Captured) -> None:
    driver = Driver()
    child, _ = driver.breakdown(ROOT, "part one", "part two")
    driver.run(child)
    driver.cancel(reason="enough")
    serve(FakeTree(driver))
    assert execute(["run", "count", *WORKER]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "starting Ray",
        "started     all",
        "spawned     all  2 children",
        "started     part one",
        "completed   part one  0.0 s",
        "failed      part two  cancelled: enough",
        "failed      all  0.0 s  cancelled: enough",
        f"error: baton {ROOT} was cancelled (enough); 'baton retry {ROOT}' starts it again",
    ]


def test_a_large_tree_is_told_in_counts(serve: Serve, capsys: Captured) -> None:
    driver = Driver(check_every=1_000)
    children = driver.breakdown(ROOT, *(f"part {n}" for n in range(1_000)))
    for child in children:
        driver.later(0.05)
        driver.run(child)
    driver.run(ROOT)
    serve(FakeTree(driver))
    assert execute(["run", "count", *WORKER]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 20
    assert lines[-1] == "1,001 batons: 1,001 done"


def test_a_failure_is_one_line_and_exit_code_1(serve: Serve, capsys: Captured) -> None:
    serve(FakeTree(failed("ValueError: no\n  File x, line 3")))
    assert execute(["run", "count", *WORKER]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"error: baton {ROOT} failed (error): ValueError: no; 'baton retry {ROOT}' starts it again"


def test_json_is_one_object_whatever_the_outcome(serve: Serve, capsys: Captured) -> None:
    for driver, code in ((completed(7), 0), (failed("no"), 1), (Driver(), 4)):
        serve(FakeTree(driver))
        assert execute(["run", "count", *WORKER, "--json", "--timeout", "0"]) == code
        told = json.loads(capsys.readouterr().out)
        root = driver.baton()
        names = ["id", "status", "result", "error", "error_kind", "batons", "events", "rounds", "usage", "duration_ms", "partial"]
        assert list(told) == names
        assert (told["status"], told["result"], told["error"]) == (root.status, root.result, root.error)
        assert (told["batons"], told["events"]) == ({root.status: 1}, driver.tree.seq)


def test_a_timeout_in_a_private_ray_says_how_to_go_on(serve: Serve, capsys: Captured) -> None:
    serve(FakeTree(Driver()))
    assert execute(["run", "count", *WORKER, "--timeout", "0"]) == 4
    assert f"'baton resume {ROOT}' goes on" in capsys.readouterr().err


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_run_cancels_its_tree(serve: Serve, capsys: Captured) -> None:
    tree = FakeTree(Driver(), interrupt)
    client = serve(tree)
    assert execute(["run", "count", *WORKER]) == 130
    assert tree.asked == [("cancel", "interrupted by the user", None)]
    assert f"cancelled {ROOT}" in capsys.readouterr().err
    assert client.closed


def test_an_interrupted_watch_leaves_its_tree_alone(serve: Serve, url: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    store_tree(url, driver)
    tree = FakeTree(driver, interrupt)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    serve(tree)
    assert execute(["watch", ROOT]) == 130
    assert tree.asked == []
    assert f"no longer watching; {ROOT} goes on" in capsys.readouterr().err


def test_what_is_typed_reaches_the_client(serve: Serve, capsys: Captured) -> None:
    client = serve(FakeTree(completed(1)))
    options = [
        "--context",
        '{"n": 1}',
        "--tool",
        "a",
        "--tool",
        "b",
        "--prompt",
        "p",
        "--model",
        "m",
        "--timeout-hint",
        "2",
        "--max-rounds",
        "3",
    ]
    more = ["--breakdown", "never", "--on-child-failure", "fail_fast", "--max-retries", "4", "--retry-on", "OSError", "--channel", "api:x"]
    last = ["--notify", "final", "--idempotency-key", "k", "--budget", "batons=9", "--hold", "--json"]
    assert execute(["submit", "count", *WORKER, *options, *more, *last]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": ROOT}
    assert client.connected["start"] is False
    assert client.submitted == {
        "goal": "count", "worker": WORKER[1], "context": {"n": 1}, "tools": ["a", "b"], "prompt": "p", "model": "m", "timeout_hint": 2,
        "max_rounds": 3, "breakdown": "never", "on_child_failure": "fail_fast", "max_retries": 4, "retry_on": ["OSError"],
        "channel": "api:x", "notify": "final", "idempotency_key": "k", "budget": {"batons": 9}, "hold": True,
    }  # fmt: skip


def test_without_a_cluster_submit_exits_with_5(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def connect(**_: Any) -> FakeClient:
        raise ClusterUnusable("Ray", "no cluster is running here; start one with 'ray start --head'")

    replace_client(monkeypatch, connect)
    assert execute(["submit", "count", *WORKER]) == 5
    assert capsys.readouterr() == ("", "error: Ray: no cluster is running here; start one with 'ray start --head'\n")


def test_an_answer_reaches_the_baton_that_waits(serve: Serve, url: str, capsys: Captured) -> None:
    driver = Driver(worker="human")
    store_tree(url, driver, lease_ms=-1)
    tree = FakeTree(driver)
    serve(tree)
    assert execute(["answer", ROOT, '{"yes": true}', "--json"]) == 0
    assert tree.asked == [("answer", ROOT, {"yes": True})]
    assert json.loads(capsys.readouterr().out) == {"id": ROOT, "done": "answered"}


def test_a_cancelled_child_is_the_child_and_not_its_root(serve: Serve, url: str) -> None:
    driver = Driver()
    child, _ = driver.breakdown(ROOT, "a", "b")
    store_tree(url, driver, lease_ms=-1)
    tree = FakeTree(driver)
    serve(tree)
    assert execute(["cancel", child, "--reason", "no need"]) == 0
    assert tree.asked == [("cancel", "no need", child)]


def test_what_is_refused_exits_with_1(serve: Serve, url: str, capsys: Captured) -> None:
    driver = completed(1)
    store_tree(url, driver)
    serve(FakeTree(driver))
    assert execute(["retry", ROOT, "--budget", "rounds=5"]) == 1
    assert capsys.readouterr().err.endswith(f"error: baton {ROOT} is completed; only a failed one can be retried\n")


@pytest.mark.parametrize(
    ("driver", "code", "line"), [(completed({"n": 1}), 0, 'completed  {"n": 1}'), (failed("no\nmore"), 1, "failed  error: no")]
)
def test_each_resumed_tree_is_a_line(driver: Driver, code: int, line: str, serve: Serve, capsys: Captured) -> None:
    serve(FakeTree(driver))
    assert execute(["resume"]) == code
    assert capsys.readouterr().out == f"{ROOT}  {line}\n"


def test_nothing_to_resume_is_no_error(serve: Serve, capsys: Captured) -> None:
    serve(FakeTree(Driver(submit=False)))
    assert execute(["resume"]) == 0
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "no unfinished trees")


def test_a_fault_of_ours_is_one_line_too(serve: Serve, capsys: Captured) -> None:
    def broken() -> None:
        raise RuntimeError("several\nlines")

    serve(FakeTree(Driver(), broken))
    assert execute(["run", "count", *WORKER]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: RuntimeError: several lines (")
    assert last.endswith("); please report it, this is a fault of ours")


def test_what_others_print_while_a_tree_runs_is_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    with data_only(), data_only():
        print("(raylet) WARNING: many processes")
        print_json({"id": 1})
    print_json({"id": 2})
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [{"id": 1}, {"id": 2}]
    assert err == "(raylet) WARNING: many processes\n"
