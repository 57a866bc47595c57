"""What any store must do. Subclass `StoreContract` in a test module that has these two fixtures:

    store       a `Store` on an empty database whose schema is current
    empty_url   the URL of a database in which nothing is

The tests know a store by its public methods, but for those of its schema. Nothing sleeps: what must wait, waits for
another process or thread.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from baton_actors.baton import Constraints, ErrorKind, Status
from baton_actors.errors import DatabaseUnusable, Moved, NotFound
from baton_actors.events import Event, EventType
from baton_actors.jsonable import MAX_DEPTH, encode
from baton_actors.store import Group, GroupRefused, Owned, Store, migrations
from baton_actors.testing.store_samples import (
    NOW,
    OWNER,
    begun,
    execute,
    group_of,
    last_of,
    lent_while_stopped,
    log,
    migrate,
    new_children,
    new_root,
    row_of,
    spawned,
    taken,
    upgrade,
    write_many,
    write_until_deposed,
    write_until_killed,
    write_waiting,
)

#: Chinese, 4-byte, right-to-left, combining, and what JSON or SQL might take for its own.
TEXTS = "你好，世界 🧭🏽 𝔘𝔫𝔦 שלום \u202eمرحبا e\u0301 \u2028 \x7f ' \" \\ % ? :x %s {} \r\n\t"


class StoreContract:
    """Tests that any store must pass."""

    @pytest.fixture
    def other(self, store: Store) -> Iterator[Store]:
        """A second way into the same database."""
        with closing(Store(store.url)) as second:
            yield second

    # ---------------------------------------------------------------- trees begin

    def test_a_tree_that_begins_is_read_back_whole(self, store: Store) -> None:
        root = new_root()
        budget = {"limits": {"batons": 5}, "since": NOW, "guards": {}}
        row = row_of(
            root,
            wake_at=NOW,
            budget=budget,
            code={"worker": "code:1"},
            answered=[["c1", {"id": root.id}]],
            idempotency_key="k",
            agent={"base_url": TEXTS},
        )
        assert store.begin_tree(row, group_of(root, events=log(root.id, 1, 3))) is None
        kept = store.tree(root.id)
        assert (kept.seq, kept.epoch, kept.status, kept.owner, kept.owner_pid) == (3, 1, "open", OWNER, None)
        assert (kept.budget, kept.code, kept.answered, kept.idempotency_key) == (budget, row.code, row.answered, "k")
        assert kept.agent == {"base_url": TEXTS}
        assert store.tree(begun(store).id).agent == {}
        assert store.baton(root.id) == root

    def test_a_tree_that_begins_twice_is_written_once(self, store: Store, other: Store) -> None:
        root = begun(store)
        changed = root.model_copy(update={"goal": "another"})
        assert other.begin_tree(row_of(root, epoch=7), group_of(changed, events=log(root.id, 1, 2))) == root.id
        assert store.baton(root.id).goal == "root"
        assert store.tree(root.id).epoch == 1

    def test_an_idempotency_key_that_is_known_answers_with_the_first_tree(self, store: Store, other: Store) -> None:
        first = begun(store, idempotency_key="order 7")
        second = new_root()
        assert other.begin_tree(row_of(second, idempotency_key="order 7"), group_of(second)) == first.id
        with pytest.raises(NotFound):
            store.baton(second.id)

    def test_one_idempotency_key_given_by_many_at_once_begins_one_tree(self, store: Store) -> None:
        def submit(_: int) -> str:
            root = new_root()
            with closing(Store(store.url)) as mine:
                return mine.begin_tree(row_of(root, idempotency_key="once"), group_of(root, events=log(root.id, 1, 1))) or root.id

        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(submit, range(8)))) == 1
        assert len(store.trees()) == 1

    # ---------------------------------------------------------------- groups

    def test_a_group_is_written_with_its_events_and_its_seq(self, store: Store) -> None:
        root = begun(store)
        group = Group(events=log(root.id, 2, 4), tree={"status": "completed", "wake_at": None}, release=True)
        group.add_row(root.id, False, {"status": Status.COMPLETED, "result": [1], "partial": True, "updated_at": NOW + 1})
        store.commit(root.id, 1, group)
        tree = store.tree(root.id)
        assert (tree.seq, tree.status, tree.owner, tree.owner_pid) == (4, "completed", None, None)
        assert store.outcome(root.id) == root.model_copy(
            update={"status": Status.COMPLETED, "result": [1], "partial": True, "updated_at": NOW + 1}
        )
        assert [event.seq for event in store.events(root.id, 0, 10)] == [1, 2, 3, 4]

    def test_a_lower_epoch_writes_nothing(self, store: Store, other: Store) -> None:
        root = begun(store)
        assert other.lend(root.id, "owner-2", "c1", OWNER) == 2
        group = group_of(*new_children(root, 2), events=log(root.id, 2, 3), code={"h": ("function", b"x")})
        group.add_row(root.id, False, {"status": Status.COMPLETED, "result": 1})
        with pytest.raises(Moved):
            store.commit(root.id, 1, group)
        assert store.snapshot(root.id).batons == [root]
        assert store.tree(root.id).seq == 1
        assert store.code(["h"]) == {}
        other.commit(root.id, 2, Group(events=log(root.id, 2, 2)))

    def test_a_tree_that_is_unknown_is_written_by_nobody(self, store: Store) -> None:
        with pytest.raises(Moved):
            store.commit("bt_unknown", 1, Group(events=log("bt_unknown", 1, 1)))

    def test_a_group_that_fails_at_its_end_leaves_nothing(self, store: Store) -> None:
        root = begun(store)
        group = group_of(*new_children(root, 3), events=log(root.id, 1, 2), tree={"wake_at": 5})
        group.add_row(root.id, False, {"status": Status.SPAWNED})
        with pytest.raises(GroupRefused, match=root.id):
            store.commit(root.id, 1, group)
        assert store.snapshot(root.id).batons == [root]
        assert (store.tree(root.id).seq, store.tree(root.id).wake_at) == (1, None)
        spawned(store, root, 3, 2)

    def test_a_writer_killed_at_any_moment_leaves_whole_groups(self, store: Store) -> None:
        root = begun(store)
        spawned(store, root, 50, 2)
        spawn = multiprocessing.get_context("spawn")
        heard, told = spawn.Pipe(duplex=False)
        writer = spawn.Process(target=write_until_killed, args=(store.url, root.id, told))
        writer.start()
        assert [heard.recv() for _ in range(5)] == [3, 4, 5, 6, 7]
        writer.kill()
        writer.join()
        loaded = taken(store, root.id)
        assert loaded.tree.seq >= 7
        assert {baton.attempt for baton, _ in loaded.batons if baton.parent_id} == {loaded.tree.seq}
        assert [event.seq for event in store.events(root.id, 0, 10_000)] == list(range(1, loaded.tree.seq + 1))

    def test_an_empty_group_is_a_fence_alone(self, store: Store) -> None:
        root = begun(store)
        store.commit(root.id, 1, Group())
        with pytest.raises(Moved):
            store.commit(root.id, 2, Group())

    def test_later_changes_of_a_baton_in_one_group_are_laid_over_earlier_ones(self, store: Store) -> None:
        root = begun(store)
        (child,) = new_children(root, 1)
        group = group_of(child)
        group.add_row(child.id, False, {"status": Status.RUNNING, "attempt": 1, "alone": True})
        group.add_row(root.id, False, {"status": Status.SPAWNED, "children": [child.id], "breakdown": 1})
        group.add_row(root.id, False, {"losses": 2, "breakdown": 2})
        store.commit(root.id, 1, group)
        (kept_root, beside_root), (kept_child, beside_child) = taken(store, root.id).batons
        assert (kept_root.status, kept_root.losses, beside_root["breakdown"]) == (Status.SPAWNED, 2, 2)
        assert (kept_child.status, kept_child.attempt, beside_child["alone"]) == (Status.RUNNING, 1, True)

    def test_a_group_that_the_database_refuses_is_no_matter_of_doubt(self, store: Store) -> None:
        """Whoever decided it must decide something else: trying again would never end."""
        root = begun(store)
        group = Group(events=log(root.id, 2, 2))
        group.add_row(root.id, False, {"status": Status.FAILED, "error": "a lone surrogate: \udc88"})
        with pytest.raises(GroupRefused, match=root.id) as refused:
            store.commit(root.id, 1, group)
        assert "\n" not in str(refused.value)
        assert store.tree(root.id).seq == 1
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))

    def test_a_number_that_no_column_holds_is_refused(self, store: Store) -> None:
        root = begun(store)
        group = Group()
        group.add_row(root.id, False, {"updated_at": 2**70})
        with pytest.raises(GroupRefused, match=root.id):
            store.commit(root.id, 1, group)
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))

    # ---------------------------------------------------------------- values

    def test_every_field_of_a_baton_is_read_back(self, store: Store) -> None:
        root = new_root(
            goal=TEXTS,
            context={TEXTS: [TEXTS, {"n": 2**60, "f": 0.1, "none": None, "yes": True}]},
            tools=["a", TEXTS],
            prompt=TEXTS,
            constraints=Constraints(
                max_rounds=9, timeout_hint=0.5, breakdown="judge", on_child_failure="fail_fast", max_retries=3, retry_on=["E", "a.F"]
            ),
            worker="module:function",
            model="m",
            result_type={"type": "object"},
            resources={"num_cpus": 0.5, "isolate": True},
            status=Status.FAILED,
            error=TEXTS,
            error_kind=ErrorKind.TIMEOUT,
            attempt=1,
            losses=2,
            generation=3,
            rounds=4,
            usage={"tokens_in": 5, "cost": 0.25},
            held=True,
            not_before=NOW + 1,
            deadline=NOW + 2,
            channel="telegram:1",
            notify="progress",
            partial=True,
        )
        begun(store, root)
        beside = {
            "breakdown": 2,
            "since": 1,
            "retries": 3,
            "alone": True,
            "state": {"s": TEXTS},
            "parked": [0],
            "reborn_at": 9,
            "reserved": {"tokens": 7},
            "spoken": 12,
        }
        group = Group()
        group.add_row(root.id, False, beside)
        store.commit(root.id, 1, group)
        assert taken(store, root.id).batons == [(root, beside)]
        assert store.baton(root.id) == root == store.snapshot(root.id).batons[0]

    @pytest.mark.parametrize("result", [None, False, 0, "", [], {}, TEXTS, 2**63, -1.5e300, {"": {"": []}}])
    def test_a_result_of_a_completed_baton_is_read_back(self, store: Store, result: Any) -> None:
        root = begun(store)
        group = Group()
        group.add_row(root.id, False, {"status": Status.COMPLETED, "result": result})
        store.commit(root.id, 1, group)
        kept = store.outcome(root.id)
        assert kept.status is Status.COMPLETED
        assert kept.result == result
        assert type(kept.result) is type(result)

    def test_a_result_as_deep_and_as_large_as_allowed_is_read_back(self, store: Store) -> None:
        deep: Any = "leaf"
        for _ in range(MAX_DEPTH):
            deep = [deep]
        large = "🧭" * 3_500_000  # 14 MB
        root = new_root(status=Status.COMPLETED, result=[deep, large])
        begun(store, root)
        assert store.outcome(root.id).result == [deep, large]

    def test_an_event_is_read_back_whole(self, store: Store) -> None:
        root = new_root()
        event = Event(1, EventType.FAILED, NOW, root.id, root.id, "bt_parent", 3, 4, {"error": TEXTS, "error_kind": ErrorKind.BUDGET})
        store.begin_tree(row_of(root), group_of(root, events=[event]))
        assert store.events(root.id, 0, 1) == [event]

    def test_code_is_kept_by_hash_and_never_replaced(self, store: Store) -> None:
        store.put_code({})
        store.put_code({"h1": ("function", b"\x00\xff one")})
        root = begun(store)
        store.commit(root.id, 1, Group(code={"h1": ("function", b"other"), "h2": ("package", b"")}))
        assert store.code(["h1", "h2", "h3"]) == {"h1": b"\x00\xff one", "h2": b""}

    # ---------------------------------------------------------------- conversations

    def test_a_conversation_is_appended_to_and_read_in_order(self, store: Store) -> None:
        root, other = begun(store), begun(store)
        first = [(root.id, seq, encode({"n": seq, "content": TEXTS})) for seq in range(3)]
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2), messages=first))
        store.commit(other.id, 1, Group(events=log(other.id, 2, 2), messages=[(other.id, 0, "{}")]))
        store.commit(root.id, 1, Group(events=log(root.id, 3, 3), messages=[(root.id, 12, '{"n":12}'), (root.id, 5, '{"n":5}')]))
        rows = store.conversation(root.id)
        assert [row["n"] for row in rows] == [0, 1, 2, 5, 12]
        assert rows[0] == {"n": 0, "content": TEXTS}
        assert store.conversation(other.id) == [{}]
        assert store.conversation("bt_unknown") == []

    def test_the_first_rows_of_a_conversation_may_come_with_the_tree(self, store: Store) -> None:
        root = new_root()
        store.begin_tree(row_of(root), group_of(root, events=log(root.id, 1, 1), messages=[(root.id, 0, '{"a":1}')]))
        assert store.conversation(root.id) == [{"a": 1}]

    def test_a_place_in_a_conversation_is_written_once(self, store: Store) -> None:
        """A second one there would be a fault of ours: nothing of that group is written."""
        root = begun(store)
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2), messages=[(root.id, 0, '{"a":1}')]))
        with pytest.raises(GroupRefused):
            store.commit(root.id, 1, Group(events=log(root.id, 3, 3), messages=[(root.id, 0, '{"a":2}')]))
        assert store.conversation(root.id) == [{"a": 1}]
        assert store.tree(root.id).seq == 2

    def test_a_conversation_of_200_rounds_grows_by_what_is_new(self, store: Store) -> None:
        """S4: one statement for the rows of a round, whatever went before, and nothing is read."""
        root = begun(store)
        statements = []
        for number in range(200):
            before = store.statements
            rows = [(root.id, 2 * number + place, encode({"content": "x" * 1_000})) for place in range(2)]
            store.commit(root.id, 1, Group(events=log(root.id, number + 2, number + 2), messages=rows))
            statements.append(store.statements - before)
        assert set(statements) == {3}
        assert len(store.conversation(root.id)) == 400

    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ({"status": Status.COMPLETED, "result": "a text: " + TEXTS}, "a text: " + TEXTS),
            ({"status": Status.COMPLETED, "result": {"a": [1, "é", None]}}, '{"a":[1,"é",null]}'),
            ({"status": Status.COMPLETED, "result": None}, "null"),
            ({"status": Status.COMPLETED, "result": ""}, ""),
            ({"status": Status.FAILED, "error": "it broke: " + TEXTS, "error_kind": ErrorKind.ERROR}, "it broke: " + TEXTS),
        ],
    )
    def test_a_result_is_read_in_parts(self, store: Store, values: dict[str, Any], text: str) -> None:
        root = begun(store)
        group = Group()
        group.add_row(root.id, False, values)
        store.commit(root.id, 1, group)
        whole = len(text)
        assert store.result_text(root.id, root.id, 0, 10_000) == (text, whole)
        assert store.result_text(root.id, root.id, 2, 3) == (text[2:5], whole)
        assert store.result_text(root.id, root.id, whole, 3) == ("", whole)
        assert store.result_text(root.id, root.id, -7, 2) == (text[:2], whole)
        assert store.result_text(root.id, root.id, 0, -1) == ("", whole)

    def test_only_what_has_ended_in_the_same_tree_has_a_result(self, store: Store) -> None:
        root, stranger = begun(store), begun(store)
        (child,) = spawned(store, root, 1, 2)
        group = Group()
        group.add_row(stranger.id, False, {"status": Status.COMPLETED, "result": "secret"})
        store.commit(stranger.id, 1, group)
        for id in (root.id, child.id, stranger.id, "bt_unknown"):
            assert store.result_text(root.id, id, 0, 10) is None
        assert store.result_text(stranger.id, stranger.id, 0, 10) == ("secret", 6)

    def test_a_part_of_a_result_of_13_mb_is_read(self, store: Store) -> None:
        """S2."""
        root = begun(store)
        group = Group()
        group.add_row(root.id, False, {"status": Status.COMPLETED, "result": "0123456789" * 1_300_000})
        store.commit(root.id, 1, group)
        assert store.result_text(root.id, root.id, 12_999_995, 100) == ("56789", 13_000_000)

    # ---------------------------------------------------------------- shapes of trees

    def test_a_tree_is_loaded_parents_first_with_children_in_spawn_order(self, store: Store) -> None:
        root = begun(store)
        first = spawned(store, root, 3, 2)
        spawned(store, first[1], 2, 3)
        more = new_children(root, 12, breakdown=2)
        group = group_of(*more)
        group.add_row(root.id, False, {"children": [child.id for child in (*first, *more)]})
        store.commit(root.id, 1, group)
        loaded = taken(store, root.id)
        seen: set[str | None] = {None}
        for baton, _ in loaded.batons:
            assert baton.parent_id in seen
            seen.add(baton.id)
        assert loaded.batons[0][0].children == [child.id for child in (*first, *more)]
        assert store.baton(root.id).children == loaded.batons[0][0].children

    def test_a_snapshot_goes_depth_first_in_spawn_order(self, store: Store) -> None:
        root = begun(store)
        children = spawned(store, root, 3, 2)
        below = [spawned(store, child, 2, 3 + index) for index, child in enumerate(children)]
        snapshot = store.snapshot(root.id)
        expected = [root.id]
        for child, grandchildren in zip(children, below, strict=True):
            expected += [child.id, *(each.id for each in grandchildren)]
        assert [baton.id for baton in snapshot.batons] == expected
        assert (snapshot.root_id, snapshot.status, snapshot.seq) == (root.id, Status.SPAWNED, 5)

    def test_a_chain_of_1000_levels_is_written_and_read(self, store: Store) -> None:
        root = begun(store)
        chain = [root]
        for _ in range(1_000):
            chain += new_children(chain[-1], 1)
        group = group_of(*chain[1:])
        for parent, child in pairwise(chain):
            group.add_row(parent.id, False, {"status": Status.SPAWNED, "children": [child.id]})
        store.commit(root.id, 1, group)
        ids = [baton.id for baton in chain]
        assert [baton.id for baton in store.snapshot(root.id).batons] == ids
        assert [baton.id for baton, _ in taken(store, root.id).batons] == ids

    def test_a_baton_whose_parent_does_not_exist_is_refused(self, store: Store) -> None:
        root = begun(store)
        with pytest.raises(GroupRefused):
            store.commit(root.id, 1, group_of(*new_children(new_root(), 1)))

    # ---------------------------------------------------------------- reading

    def test_pages_of_events_have_no_gap_and_no_repeat(self, store: Store) -> None:
        root, stranger = begun(store), begun(store)
        store.commit(root.id, 1, Group(events=log(root.id, 2, 1_000)))
        store.commit(stranger.id, 1, Group(events=log(stranger.id, 2, 30)))
        seen: list[int] = []
        while page := store.events(root.id, seen[-1] if seen else 0, 7):
            seen += [event.seq for event in page]
        assert seen == list(range(1, 1_001))
        assert store.events(root.id, 1_000, 10) == store.events("bt_unknown", 0, 10) == []

    def test_readers_never_see_half_a_group(self, store: Store, other: Store) -> None:
        root = begun(store)
        children = spawned(store, root, 20, 2)
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(3, 60):
                    group = Group(events=log(root.id, number, number))
                    for child in children:
                        group.add_row(child.id, False, {"attempt": number})
                    other.commit(root.id, 1, group)
            finally:
                done.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not done.is_set():
            snapshot = store.snapshot(root.id)
            assert {baton.attempt for baton in snapshot.batons[1:]} == {snapshot.seq if snapshot.seq > 2 else 0}
        writer.join()
        assert store.tree(root.id).seq == 59

    def test_trees_are_listed_newest_first_by_status(self, store: Store) -> None:
        assert store.trees() == []
        old, new = begun(store, created_at=NOW), begun(store, created_at=NOW + 1)
        children = spawned(store, old, 2, 2)
        group = Group()
        group.add_row(new.id, False, {"status": Status.COMPLETED})
        store.commit(new.id, 1, group)
        assert [baton.id for baton in store.trees()] == [new.id, old.id]
        assert [baton.id for baton in store.trees(limit=1)] == [new.id]
        assert [(baton.id, baton.children) for baton in store.trees("spawned")] == [(old.id, [child.id for child in children])]
        assert [baton.id for baton in store.trees(Status.COMPLETED)] == [new.id]

    def test_only_batons_that_wait_for_somebody_are_waiting(self, store: Store) -> None:
        root = begun(store)
        for seq, (worker, status) in enumerate((w, s) for w in ("human", "external", "agent") for s in ("running", "pending")):
            spawned(store, root, 1, 2 + seq, breakdown=seq, worker=worker, status=status, updated_at=NOW - seq)
        assert [(baton.worker, baton.status) for baton in store.waiting()] == [("external", "running"), ("human", "running")]

    def test_batons_are_counted_by_status_and_found_by_their_id(self, store: Store) -> None:
        root = begun(store)
        (child, _) = spawned(store, root, 2, 2)
        assert store.counts(root.id) == {"spawned": 1, "pending": 2}
        assert store.root_of(child.id) == store.root_of(root.id) == root.id
        for read in (store.baton, store.outcome, store.root_of, store.tree, store.snapshot):
            with pytest.raises(NotFound, match="bt_unknown"):
                read("bt_unknown")

    # ---------------------------------------------------------------- lending

    def test_a_tree_is_lent_to_one_of_many_that_ask_at_once(self, store: Store) -> None:
        root = begun(store, owner=None, epoch=0)

        def lend(number: int) -> int | None:
            with closing(Store(store.url)) as mine:
                return mine.lend(root.id, f"owner-{number}", "c1", None)

        with ThreadPoolExecutor(8) as threads:
            epochs = list(threads.map(lend, range(8)))
        assert sorted(epochs, key=str) == [1, *[None] * 7]

    def test_a_tree_is_taken_only_by_the_owner_and_epoch_it_was_lent_to(self, store: Store) -> None:
        root = begun(store, owner=None, epoch=0)
        assert store.lend(root.id, "a", "c1", None) == 1
        assert store.owned("c1") == [Owned(root.id, "a", 1, None)]
        assert store.take(root.id, "b", 1, 7) is None
        assert store.take(root.id, "a", 0, 7) is None
        assert store.take("bt_unknown", "a", 1, 7) is None
        assert taken(store, root.id, 1, "a").tree.owner_pid == os.getpid()
        assert store.owned("c1") == [Owned(root.id, "a", 1, os.getpid())]
        assert store.lend(root.id, "c", "c1", "b") is None
        assert store.lend(root.id, "c", "c1", "a") == 2
        assert store.take(root.id, "a", 1, 7) is None

    def test_a_restarted_owner_takes_its_tree_again_at_a_new_epoch(self, store: Store) -> None:
        root = begun(store)
        assert store.retake("somebody", 7) is None
        assert store.retake(OWNER, 7) == (root.id, 2)
        with pytest.raises(Moved):
            store.commit(root.id, 1, Group())
        store.commit(root.id, 2, Group(tree={"status": "failed"}))
        assert store.retake(OWNER, 7) is None

    def test_a_tree_is_taken_away_only_at_the_epoch_at_which_it_was_seen(self, store: Store) -> None:
        """Its owner, thought dead, was restarted meanwhile: it has its name still, and a new epoch."""
        root = begun(store)
        assert store.retake(OWNER, 7) == (root.id, 2)
        assert store.lend(root.id, "b", "c1", OWNER, 1) is None
        store.commit(root.id, 2, Group(events=log(root.id, 2, 2)))
        assert store.lend(root.id, "b", "c1", OWNER, 2) == 3

    def test_an_owner_that_was_restarted_while_its_tree_was_lent_to_another_has_none(self, store: Store, other: Store) -> None:
        root = begun(store)
        assert other.lend(root.id, "b", "c1", OWNER, 1) == 2
        assert store.retake(OWNER, 7) is None
        assert store.take(root.id, OWNER, 1, 7) is None
        with pytest.raises(Moved):
            store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))
        assert taken(other, root.id, 2, "b").tree.seq == 1

    def test_an_ended_tree_can_be_lent_to_be_retried(self, store: Store) -> None:
        root = begun(store)
        store.commit(root.id, 1, Group(tree={"status": "failed"}, release=True))
        assert store.owned("c1") == []
        assert store.lend(root.id, "again", "c1", None) == 2
        assert store.owned("c1") == [Owned(root.id, "again", 2, None)]

    def test_another_clusters_tree_is_lent_only_when_its_lease_has_expired(self, store: Store) -> None:
        held, left = begun(store, owner=None), begun(store, lease_ms=-1, owner=None)
        assert store.lend(held.id, "x", "c2", None) is None
        assert store.lend(left.id, "x", "c2", None) == 2
        assert store.tree(left.id).cluster_id == "c2"
        assert store.lend(left.id, "y", "c1", "x") is None

    def test_trees_are_due_woken_before_new_and_oldest_first(self, store: Store) -> None:
        def waiting(created_at: int, epoch: int, **columns: Any) -> str:
            return begun(store, **{"owner": None, "epoch": epoch, "wake_at": NOW, "created_at": NOW + created_at, **columns}).id

        new_late, new_early = waiting(4, 0), waiting(1, 0)
        woken_late, woken_early = waiting(3, 5), waiting(2, 1)
        waiting(0, 0, cluster_id="c2")
        waiting(0, 0, owner="busy")
        waiting(0, 0, wake_at=None)
        waiting(0, 0, status="failed")
        future = waiting(0, 0, wake_at=int(time.time() * 1000) + 3_600_000)
        assert store.due("c1", 10) == [woken_early, woken_late, new_early, new_late]
        assert store.due("c1", 2) == [woken_early, woken_late]
        assert store.due("c3", 10) == []
        wake = store.next_wake("c1")
        assert wake is not None
        assert 3_000_000 < wake <= 3_600_000 + 60_000
        assert store.next_wake("c2") is None
        store.lend(future, "a", "c1", None)
        assert store.next_wake("c1") is None

    def test_2000_trees_that_wait_do_not_delay_one_that_was_woken(self, store: Store) -> None:
        new = [new_root() for _ in range(2_000)]
        write_waiting(store, new)
        assert store.due("c1", 1) == [new[0].id]
        woken = begun(store, owner=None, wake_at=NOW, created_at=NOW + 10_000_000).id
        before = store.statements
        assert store.due("c1", 1) == [woken]
        assert store.statements - before == 1

    def test_processes_of_trees_whose_lease_expired_are_known(self, store: Store) -> None:
        begun(store, lease_ms=-1, owner_pid=11)
        begun(store, lease_ms=-1, owner_pid=11)
        begun(store, owner_pid=12)
        begun(store, lease_ms=-1, owner_pid=13, status="completed")
        begun(store, lease_ms=-1, owner=None)
        assert store.left_pids() == [11]

    def test_a_cluster_that_leaves_gives_up_its_open_trees_at_once_and_no_others(self, store: Store, other: Store) -> None:
        ours, theirs, ended = begun(store).id, begun(store, cluster_id="c2").id, begun(store, status="completed").id
        store.leave("c1")
        assert store.abandoned() == [ours]
        assert other.adopt("c3") == [ours]
        assert store.tree(theirs).cluster_id == "c2"
        assert store.tree(ended).cluster_id == "c1"

    def test_open_trees_whose_lease_expired_are_adopted_by_one_cluster(self, store: Store, other: Store) -> None:
        gone = [begun(store, lease_ms=-1).id for _ in range(3)]
        ours = begun(store, lease_ms=-1, cluster_id="c2").id
        held = begun(store).id
        ended = begun(store, lease_ms=-1, status="completed").id
        assert sorted(store.abandoned()) == sorted([*gone, ours])
        assert store.adopt("c2", [gone[0], held, ended, "bt_unknown"]) == [gone[0]]
        assert other.adopt("c3") == sorted([*gone[1:], ours])
        assert store.adopt("c2") == []
        assert store.abandoned() == []
        tree = store.tree(gone[0])
        assert (tree.cluster_id, tree.owner, tree.owner_pid, tree.epoch) == ("c2", None, None, 2)
        assert store.due("c2", 10) == [gone[0]]
        with pytest.raises(Moved):
            store.commit(gone[0], 1, Group())

    def test_a_renewed_lease_lasts_30_seconds_of_the_databases_time(self, store: Store) -> None:
        open_, theirs = begun(store, lease_ms=-1).id, begun(store, lease_ms=-1, cluster_id="c2").id
        ended = begun(store, lease_ms=-1, status="completed", owner=None).id
        assert store.lease_left(open_) == 0
        store.renew("c1")
        left = store.lease_left(open_)
        assert left is not None
        assert 0 < left <= 30
        assert store.lease_left(theirs) == 0
        assert store.lease_left(ended) is None
        assert store.lease_left("bt_unknown") is None
        assert store.abandoned() == [theirs]

    # ---------------------------------------------------------------- deposed

    def test_a_process_that_was_stopped_while_another_took_over_writes_no_row(self, store: Store) -> None:
        """O2: it is in the middle of its writing when it is stopped; continued, it finds at its next commit that it was deposed."""
        root = begun(store)
        children = spawned(store, root, 20, 2)
        spawn = multiprocessing.get_context("spawn")
        heard, told = spawn.Pipe(duplex=False)
        writer = spawn.Process(target=write_until_deposed, args=(store.url, root.id, 1, told))
        writer.start()
        told.close()
        try:
            while heard.recv() < 10:
                pass
            epoch = lent_while_stopped(store, root.id, writer)
            seq = store.tree(root.id).seq
            for number in range(1, 31):
                group = Group(events=log(root.id, seq + number, seq + number))
                for child in children:
                    group.add_row(child.id, False, {"attempt": seq + number, "error": "mine"})
                store.commit(root.id, epoch, group)
                if number == 10:
                    os.kill(writer.pid or 0, signal.SIGCONT)
            assert last_of(heard) == "moved"
        finally:
            writer.kill()
            writer.join()
        assert [event.seq for event in store.events(root.id, 0, 10_000)] == list(range(1, seq + 31))
        assert {(baton.attempt, baton.error) for baton in store.snapshot(root.id).batons[1:]} == {(seq + 30, "mine")}
        assert (store.tree(root.id).epoch, store.tree(root.id).seq) == (epoch, seq + 30)

    # ---------------------------------------------------------------- many at once

    def test_20_writers_in_4_processes_are_never_refused(self, store: Store) -> None:
        roots = [begun(store).id for _ in range(20)]
        with multiprocessing.get_context("spawn").Pool(4) as pool:
            pool.starmap(write_many, [(store.url, roots[start::4], 10) for start in range(4)])
        assert [store.tree(root).seq for root in roots] == [11] * 20
        assert all(store.counts(root) == {"running": 1, "pending": 10} for root in roots)

    # ---------------------------------------------------------------- the schema

    def test_an_upgrade_is_done_once_and_then_writes_nothing(self, empty_url: str) -> None:
        with closing(Store(empty_url)) as store:
            revision = store.upgrade()
            begun(store)
            commits = store.commits
            assert store.upgrade() == revision
            assert store.commits == commits
            assert len(store.trees()) == 1

    def test_an_upgrade_begun_by_4_processes_at_once_succeeds_in_all(self, empty_url: str) -> None:
        with multiprocessing.get_context("spawn").Pool(4) as pool:
            assert len(set(pool.map(upgrade, [empty_url] * 4, chunksize=1))) == 1
        with closing(Store(empty_url)) as store:
            begun(store)

    def test_a_schema_newer_than_the_program_is_refused_with_what_to_do(self, empty_url: str) -> None:
        with closing(Store(empty_url)) as store:
            store.upgrade()
            execute(store, "UPDATE alembic_version SET version_num = '9999'")
        with closing(Store(empty_url)) as store, pytest.raises(DatabaseUnusable, match=r"9999.*newer than this program.*pip install -U"):
            store.upgrade()

    def test_an_empty_database_that_is_read_says_how_to_make_the_tables(self, empty_url: str) -> None:
        with closing(Store(empty_url)) as store, pytest.raises(DatabaseUnusable, match=r"no tables.*baton db upgrade"):
            store.trees()

    def test_tables_of_another_program_are_left_alone(self, empty_url: str) -> None:
        with closing(Store(empty_url)) as store:
            execute(store, "CREATE TABLE batons (id INTEGER)")
            with pytest.raises(DatabaseUnusable, match="did not make"):
                store.upgrade()

    def test_trees_of_the_first_schema_are_kept_and_go_on(self, empty_url: str) -> None:
        root = new_root()
        with closing(Store(empty_url)) as store:
            migrate(store, "0001")
            execute(
                store,
                f"INSERT INTO batons (id, root_id, goal, created_at, updated_at) VALUES ('{root.id}', '{root.id}', 'root', {NOW}, {NOW})",
            )
            columns = "root_id, cluster_id, lease_until, owner, epoch, seq, created_at"
            execute(store, f"INSERT INTO trees ({columns}) VALUES ('{root.id}', 'c1', {NOW}, '{OWNER}', 1, 0, {NOW})")
        with closing(Store(empty_url)) as store:
            assert store.upgrade() == migrations.HEAD
            loaded = taken(store, root.id)
            assert (loaded.tree.agent, loaded.batons[0][0], loaded.batons[0][1]["spoken"]) == ({}, root, 0)
            group = Group(events=log(root.id, 1, 1), messages=[(root.id, 0, '{"a":1}')])
            group.add_row(root.id, False, {"spoken": 1})
            store.commit(root.id, 1, group)
            assert taken(store, root.id).batons[0][1]["spoken"] == 1
            assert store.conversation(root.id) == [{"a": 1}]

    def test_the_tables_are_those_that_the_migrations_make(self, store: Store) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        from baton_actors.store.tables import metadata

        with store._database.write("comparing") as connection:
            context = MigrationContext.configure(connection, opts={"compare_server_default": True})
            assert compare_metadata(context, metadata) == []

    def test_a_store_that_was_closed_opens_again(self, store: Store) -> None:
        root = begun(store)
        store.close()
        store.close()
        assert store.baton(root.id) == root

    def test_statements_and_commits_are_counted(self, store: Store) -> None:
        root = begun(store)
        statements, commits = store.statements, store.commits
        store.commit(root.id, 1, Group(events=log(root.id, 2, 3)))
        assert (store.statements - statements, store.commits - commits) == (2, 1)
        store.outcome(root.id)
        assert (store.statements - statements, store.commits - commits) == (3, 1)
