"""Trees of function workers, run by real owners and worker processes on both databases."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import baton_actors as baton
from baton_actors.client import Client
from baton_actors.errors import ClusterUnusable

from .conftest import story


@pytest.fixture
def user(connected: Callable[..., Client], database_url: str, working_directory: Path) -> Client:
    return connected(database_url=database_url)


def test_a_thousand_children_are_joined_once(user: Client) -> None:
    tree = user.submit("add", worker="jobs:total", context={"to": 1000})
    assert tree.result() == 500_500
    events = story(user, tree)
    assert Counter(event.type for event in events)["baton.completed"] == 1001
    assert Counter(event.type for event in events)["baton.resumed"] == 1
    assert events[-1].type == "tree.completed"


def test_a_chain_of_a_thousand_levels_unwinds(user: Client) -> None:
    tree = user.submit("go down", worker="jobs:chain", context={"levels": 1000})
    assert tree.result() == 1000
    assert max(each.depth for each in tree.snapshot().batons) == 999


def test_an_empty_breakdown_resumes_at_once(user: Client) -> None:
    assert user.submit("nothing to do", worker="jobs:empty").result() == [1, "kept", 0]


def test_a_parent_breaks_down_three_times_and_sees_each_time_the_last_children_only(user: Client) -> None:
    assert user.submit("again", worker="jobs:thrice").result() == [[], [0, 1], [10, 11], [20, 21]]


def test_functions_travel_by_value(client: Client) -> None:
    def double(baton: baton.Baton, ctx: baton.Context) -> int:
        return int(baton.context["n"]) * 2

    def parent(task: baton.Baton, ctx: baton.Context) -> object:
        if ctx.breakdown:
            return [child.result for child in ctx.children]
        return baton.Spawned([baton.Child("double", {"n": n}, worker=double) for n in range(3)])

    assert client.submit("double them", worker=parent).result() == [0, 2, 4]
    assert client.submit("say seven", worker=lambda baton, ctx: 7).result() == 7


def test_a_tree_outlives_the_file_of_its_worker(client: Client, working_directory: Path) -> None:
    answer = working_directory / "answer.txt"
    context = {"file": str(answer), "count": 3, "child": "jobs:wait_for_file"}
    tree = client.submit("wait", worker="jobs:many", context=context)
    (working_directory / "jobs.py").unlink()
    answer.write_text("here")
    assert tree.result() == ["here"] * 3


def test_two_projects_with_modules_of_one_name_run_side_by_side(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    trees = []
    for name in ("left", "right"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "work.py").write_text(f"def say(baton, ctx):\n    return {name!r}\n")
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.syspath_prepend(str(folder))
            trees.append(client.submit("say", worker="work:say"))
            sys.modules.pop("work")
    assert [tree.result() for tree in trees] == ["left", "right"]


def test_results_can_be_awaited_inside_a_running_loop(client: Client) -> None:
    async def main() -> list[int]:
        trees = [client.submit(f"say {n}", worker=lambda baton, ctx: len(baton.goal)) for n in range(3)]
        types = [event.type async for event in trees[0].events()]
        assert types[0] == "baton.created"
        assert types[-1] == "tree.completed"
        return [trees[0].result(), await trees[1], await trees[2]]

    assert asyncio.run(main()) == [5, 5, 5]


def test_map_yields_results_in_the_order_of_the_goals(client: Client) -> None:
    assert list(client.map(["a", "bb", "ccc"], worker=lambda baton, ctx: len(baton.goal))) == [1, 2, 3]


def test_more_trees_than_owners_wait_in_the_database_and_all_end(connected: Callable[..., Client], sqlite_url: str) -> None:
    client = connected(database_url=sqlite_url, max_trees=2)
    trees = [client.submit(f"tree {n}", worker=lambda baton, ctx: baton.goal) for n in range(12)]
    assert [tree.result() for tree in trees] == [f"tree {n}" for n in range(12)]


def test_an_idempotency_key_leads_to_the_first_tree(client: Client) -> None:
    first = client.submit("once", worker=lambda baton, ctx: 1, idempotency_key="k")
    again = client.submit("once", worker=lambda baton, ctx: 2, idempotency_key="k")
    assert (again.id, again.result()) == (first.id, 1)


def test_a_budget_of_batons_stops_a_breakdown(client: Client, working_directory: Path) -> None:
    tree = client.submit("too many", worker="jobs:total", context={"to": 10}, budget={"batons": 10})
    with pytest.raises(baton.BatonFailed, match="budget is 10") as failed:
        tree.result()
    assert failed.value.error_kind == "budget"


def test_seconds_of_a_budget_end_a_tree_that_runs_on(client: Client, working_directory: Path, tmp_path: Path) -> None:
    tree = client.submit("wait", worker="jobs:wait_for_file", context={"file": str(tmp_path / "never")}, budget={"seconds": 0.5})
    with pytest.raises(baton.BatonFailed) as failed:
        tree.result()
    assert failed.value.error_kind == "budget"


def test_a_retryable_failure_is_tried_again(client: Client, working_directory: Path) -> None:
    tree = client.submit("flaky", worker="jobs:flaky", max_retries=3)
    assert tree.result() == 3
    assert [event.data["reason"] for event in story(client, tree) if event.type == "baton.retrying"] == ["error", "error"]


def test_a_window_that_closes_hands_over(client: Client, working_directory: Path) -> None:
    tree = client.submit("relay", worker="jobs:relay", context={"steps": 5})
    assert tree.result() == 5
    assert sum(event.type == "baton.handed_over" for event in story(client, tree)) == 4


def test_a_result_that_is_not_json_names_the_path(client: Client, working_directory: Path) -> None:
    with pytest.raises(baton.BatonFailed, match=r"result\.items\[1\]") as failed:
        client.submit("bad", worker="jobs:not_json").result()
    assert failed.value.error_kind == "invalid_result"


def test_an_exception_arrives_as_data(client: Client, working_directory: Path) -> None:
    with pytest.raises(baton.BatonFailed, match="Unpicklable: broken on purpose") as failed:
        client.submit("raise", worker="jobs:raises").result()
    assert "in raises" in failed.value.error


def test_a_failed_tree_is_retried_and_completed_children_are_kept(client: Client, tmp_path: Path) -> None:
    flag, log = tmp_path / "flag", tmp_path / "log"

    def child(task: baton.Baton, ctx: baton.Context) -> int:
        with log.open("a") as lines:
            lines.write(f"{task.context['n']}\n")
        if task.context["n"] == 1 and not flag.exists():
            raise RuntimeError("not yet")
        return int(task.context["n"])

    def parent(task: baton.Baton, ctx: baton.Context) -> object:
        if ctx.breakdown == 0:
            return baton.Spawned([baton.Child("child", {"n": n}, worker=child) for n in range(3)])
        if any(each.error for each in ctx.children):
            raise RuntimeError("a child failed")
        return [each.result for each in ctx.children]

    tree = client.submit("retry me", worker=parent)
    with pytest.raises(baton.BatonFailed):
        tree.result()
    flag.touch()
    tree.retry()
    assert tree.result() == [0, 1, 2]
    assert sorted(log.read_text().split()) == ["0", "1", "1", "2"]
    assert [event.type for event in tree.events()].count("tree.reopened") == 1


def test_cancel_tells_running_workers_and_ends_every_descendant(client: Client, working_directory: Path, tmp_path: Path) -> None:
    context = {"folder": str(tmp_path), "count": 4, "child": "jobs:spin_until_cancelled"}
    tree = client.submit("spin", worker="jobs:many", context=context)
    _wait_for(lambda: len(list(tmp_path.glob("began-*"))) == 4)
    tree.cancel("enough")
    with pytest.raises(baton.BatonCancelled, match="enough"):
        tree.result()
    assert {each.error_kind for each in tree.snapshot().batons} == {"cancelled"}
    _wait_for(lambda: len(list(tmp_path.glob("stopped-*"))) == 4)
    tree.cancel("twice")
    with pytest.raises(baton.NotFound):
        client.get("bt_00000000000000000000000000")


def test_an_ended_tree_cannot_be_cancelled_nor_a_completed_one_retried(client: Client) -> None:
    tree = client.submit("quick", worker=lambda baton, ctx: None)
    assert tree.result() is None
    with pytest.raises(baton.NotAllowed, match="already ended"):
        tree.cancel()
    with pytest.raises(baton.NotAllowed, match="only a failed one"):
        tree.retry()


def test_a_held_tree_starts_when_it_is_released(client: Client) -> None:
    tree = client.submit("hold", worker=lambda baton, ctx: "ran", hold=True)
    with pytest.raises(baton.WaitTimeout):
        tree.result(timeout=0.3)
    tree.release()
    tree.release()
    assert tree.result() == "ran"


def test_a_question_waits_without_an_owner_until_it_is_answered(client: Client) -> None:
    def ask(task: baton.Baton, ctx: baton.Context) -> object:
        return [each.result for each in ctx.children] if ctx.breakdown else baton.Spawned([baton.Child("which colour?", worker="human")])

    tree = client.submit("paint", worker=ask)
    waiting = next(event for event in tree.events() if event.type == "baton.waiting")
    assert [each.id for each in client.list(waiting=True)] == [waiting.baton_id]
    tree.answer(waiting.baton_id, "blue")
    assert tree.result() == ["blue"]
    with pytest.raises(baton.NotAllowed, match="does not wait"):
        tree.answer(tree.id, "red")


def test_isolated_batons_have_processes_of_their_own(client: Client, working_directory: Path) -> None:
    def parent(task: baton.Baton, ctx: baton.Context) -> object:
        if ctx.breakdown:
            return [each.result for each in ctx.children]
        return baton.Spawned([baton.Child("pid", worker="jobs:process", resources={"isolate": True, "num_cpus": 0.5}) for _ in range(4)])

    pids = client.submit("apart", worker=parent).result()
    assert len(set(pids)) == 4


def test_many_batons_share_few_processes(client: Client, working_directory: Path) -> None:
    pids = client.submit("together", worker="jobs:many", context={"count": 200, "child": "jobs:process"}).result()
    assert len(set(pids)) <= 2


def _wait_for(condition: Callable[[], bool]) -> None:
    """Waits for something that only a file tells; bounded by the test's own time limit."""
    import time

    while not condition():
        time.sleep(0.01)


def test_a_client_that_cannot_reach_the_database_reads_through_an_actor(
    connected: Callable[..., Client], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton_actors.client.socket.gethostname", lambda: "another-machine")
    client = connected(database_url=sqlite_url)
    tree = client.submit("far away", worker=lambda baton, ctx: baton.goal)
    assert tree.result() == "far away"
    assert client._store is None
    assert [each.id for each in client.list()] == [tree.id]
    assert tree.snapshot().batons[0].result == "far away"
    assert [event.type for event in tree.events()][-1] == "tree.completed"
    with pytest.raises(baton.NotFound):
        client.get("bt_00000000000000000000000000")


def test_a_subscriber_who_comes_while_a_tree_waits_sees_what_was_at_once(user: Client) -> None:
    tree = user.submit("Which?", worker="human")
    next(event for event in tree.events() if event.type == "baton.waiting")
    assert user.list(waiting=True)
    late = iter(user.get(tree.id).events())
    assert [next(late).type for _ in range(2)] == ["baton.created", "baton.waiting"]
    tree.answer(tree.id, "this")
    assert [event.type for event in late] == ["baton.completed", "tree.completed"]


def test_a_closed_client_says_so_and_starts_nothing(client: Client) -> None:
    tree = client.submit("say seven", worker=lambda baton, ctx: 7)
    assert tree.result() == 7
    client.close()
    for act in (lambda: client.submit("again", worker=lambda baton, ctx: 7), tree.result, tree.cancel, lambda: list(tree.events())):
        with pytest.raises(ClusterUnusable, match="this client: is closed"):
            act()
