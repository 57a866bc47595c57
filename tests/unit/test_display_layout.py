"""What is shown when there are more batons than lines, and that showing little costs little."""

from typing import Any

import pytest

from baton_actors.baton import Status
from baton_actors.display import Mark, TreeView, layout, text_lines
from baton_actors.display.layout import BatonLine, FoldLine, GapLine
from baton_actors.display.view import Node
from tests.unit.drive import ROOT, Driver
from tests.unit.test_display_view import followed, random_story


def wide(completed: int, running: int, pending: int, failed: int = 0) -> TreeView:
    driver = Driver(check_every=1_000_000)
    children = driver.breakdown(ROOT, *(f"part {n}" for n in range(completed + running + pending + failed)))
    for id in children[:completed]:
        driver.run(id)
    for id in children[completed : completed + failed]:
        driver.start(id)
        driver.fail(id, error="no such file")
    driver.start(*children[completed + failed : completed + failed + running])
    return followed(driver)


def chain(levels: int) -> TreeView:
    driver = Driver(check_every=1_000_000)
    id = ROOT
    for level in range(levels):
        [id] = driver.breakdown(id, f"level {level}")
    driver.start(id)
    return followed(driver)


def lines(view: TreeView, height: int | None = None) -> list[str]:
    return list(text_lines(view, now=0, height=height))


def test_everything_is_shown_in_spawn_order_when_there_is_room() -> None:
    view = wide(completed=2, running=1, pending=1)
    goals = [line.node.goal for line in layout(view) if isinstance(line, BatonLine)]
    assert goals == ["all", "part 0", "part 1", "part 2", "part 3"]
    assert lines(view, 5) == lines(view)


def test_ended_batons_are_folded_before_live_ones() -> None:
    shown = lines(wide(completed=12, running=2, pending=3), 8)
    assert [line.split()[0] for line in shown[1:6]] == ["running", "running", "pending", "pending", "pending"]
    assert shown[6].strip() == "12 done"


def test_siblings_are_folded_when_not_all_fit() -> None:
    shown = lines(wide(completed=12, running=2, pending=40), 8)
    assert len(shown) == 8
    assert shown[-1].strip() == "12 done · 36 more pending"


def test_the_reason_of_a_failure_stands_under_it_even_when_many_run() -> None:
    shown = lines(wide(completed=0, running=100, pending=0, failed=1), 10)
    assert shown[1].split()[:3] == ["failed", "part", "0"]
    assert shown[2].strip() == "error: no such file"
    assert len(shown) == 10


def test_many_failures_do_not_hide_what_runs() -> None:
    shown = lines(wide(completed=0, running=5, pending=0, failed=100), 20)
    assert sum(line.strip().startswith("running") for line in shown) == 5
    assert shown[-1].strip().endswith("more failed")


@pytest.mark.parametrize("height", [1, 2, 3, 5, 10, 24, 100])
@pytest.mark.parametrize("seed", range(15))
def test_a_picture_never_is_higher_than_asked_and_begins_with_the_root(seed: int, height: int) -> None:
    view = followed(random_story(seed))
    shown = list(layout(view, height))
    assert 1 <= len(shown) <= height
    first = shown[0]
    assert isinstance(first, BatonLine)
    assert first.node.id == ROOT
    assert first.counts == view.counts


@pytest.mark.parametrize("seed", range(15))
def test_no_child_is_lost_between_what_is_shown_and_what_is_folded(seed: int) -> None:
    view = followed(random_story(seed))
    below: dict[int, tuple[Node, int]] = {}
    told: dict[str, int] = {}
    parents: list[Node] = []
    for line in layout(view, 12):
        if isinstance(line, BatonLine):
            below[line.level] = (line.node, 0)
            parents.append(line.node)
            if line.node.parent is not None:
                told[line.node.parent.id] = told.get(line.node.parent.id, 0) + 1
        elif isinstance(line, FoldLine):
            parent = below[line.level - 1][0]
            told[parent.id] = told.get(parent.id, 0) + sum(line.counts.values())
    for parent in parents:
        assert told.get(parent.id, parent.child_count) == parent.child_count


def test_levels_of_one_baton_each_are_folded_so_that_the_running_end_is_seen() -> None:
    shown = list(layout(chain(5_000), 10))
    assert [type(line) for line in shown] == [BatonLine, GapLine, BatonLine, BatonLine]
    last = shown[-1]
    assert isinstance(last, BatonLine)
    assert (last.node.goal, last.node.mark) == ("level 4999", Mark.RUNNING)


def test_a_tree_of_5000_levels_is_shown_whole_without_a_height() -> None:
    assert len(lines(chain(5_000))) == 5_001


def test_a_tree_nobody_has_heard_of_shows_nothing() -> None:
    assert lines(TreeView(ROOT)) == []


def test_showing_a_screenful_of_a_large_tree_does_not_walk_its_batons(monkeypatch: pytest.MonkeyPatch) -> None:
    view = wide(completed=3_000, running=100, pending=5_000, failed=100)
    touched = set()
    original = BatonLine.__init__

    def counting(self: BatonLine, level: int, node: Node, *tree: Any) -> None:
        touched.add(node.id)
        original(self, level, node, *tree)

    monkeypatch.setattr(BatonLine, "__init__", counting)
    monkeypatch.setattr(Node, "children", None)  # sorts all children: only for a picture without a height
    assert len(lines(view, 24)) == 24
    assert len(touched) < 24
    assert view.counts[Mark(Status.COMPLETED)] == 3_000
