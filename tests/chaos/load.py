"""People and programs that use a cluster while it is injured: they submit, wait, watch, cancel, retry and answer, and write down what
they were told."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

import baton_actors as baton
from baton_actors.client import Client
from tests.chaos.history import History
from tests.chaos.plans import Plan, evaluated, random_plan
from tests.chaos.playing import bounds_of
from tests.chaos.waiting import within

#: Of all trees, so many are cancelled by their customer, after so many seconds at most; so many are watched.
CANCELLED, CANCEL_SECONDS, WATCHED = 0.12, 3.0, 0.4
#: Seconds between two looks at what waits for an answer, and at the rows of the trees.
ANSWER_PAUSES, LOOK_SECONDS = (0.1, 1.0), 0.2
#: Seconds that a client waits for a result at a time.
WAIT_SECONDS = 5.0


class Load:
    """So many customers, each with one tree at a time; somebody who answers questions; somebody who looks at the rows.

    Args:
        url: of the database, for the one who looks.
    """

    def __init__(self, client: Client, url: str, history: History, seed: int, customers: int) -> None:
        self._client = client
        self._url = url
        self._history = history
        self._closing = threading.Event()
        self._over = threading.Event()
        self._customers = [_thread(self._buy, n, random.Random(f"{seed} customer {n}")) for n in range(customers)]
        self._watchers: list[threading.Thread] = []
        self._others = [_thread(self._answer, random.Random(f"{seed} answers")), _thread(self._look)]

    def start(self) -> None:
        for thread in [*self._customers, *self._others]:
            thread.start()

    def close(self) -> None:
        """No new trees."""
        self._closing.set()

    def ended(self, seconds: float) -> bool:
        """Whether everybody has got their results within that time."""
        return within(seconds, lambda: not any(thread.is_alive() for thread in self._customers))

    def stop(self) -> None:
        """Everybody goes home; those who watch are told the end first."""
        for thread in self._watchers:
            thread.join(WAIT_SECONDS)
        self._over.set()
        for thread in self._others:
            thread.join(WAIT_SECONDS)

    # ------------------------------------------------------------ customers

    def _buy(self, number: int, chance: random.Random) -> None:
        count = 0
        while not self._closing.is_set():
            count += 1
            self._one_tree(f"customer {number} tree {count}", chance)

    def _one_tree(self, key: str, chance: random.Random) -> None:
        plan, cancels, watched = random_plan(chance), chance.random() < CANCELLED, chance.random() < WATCHED
        patience = chance.uniform(0, CANCEL_SECONDS)
        tree = self._submitted(key, plan)
        if tree is None:
            return
        if watched:
            watcher = _thread(self._watch, tree)
            self._watchers.append(watcher)
            watcher.start()
        if cancels:
            self._over.wait(patience)
            self._order(tree, "cancel", tree.id, lambda: tree.cancel("the customer has changed his mind"))
        root = self._waited(tree)
        if root is not None and root.status == "failed" and root.error_kind == "error" and evaluated(plan, retried=True)[0]:
            self._order(tree, "retry", tree.id, tree.retry)
            self._waited(tree)

    def _submitted(self, key: str, plan: Plan) -> baton.TreeHandle | None:
        while not self._over.is_set():
            with self._surprises("submit"):
                tree = self._client.submit(key, context=plan, idempotency_key=key, **bounds_of(plan))
                self._history.add("submitted", key=key, root_id=tree.id, plan=plan)
                return tree
            self._over.wait(0.2)
        return None

    def _waited(self, tree: baton.TreeHandle) -> baton.Baton | None:
        while not self._over.is_set():
            with self._surprises("wait"), suppress(baton.WaitTimeout):
                root = tree.wait(WAIT_SECONDS)
                told = {name: getattr(root, name) for name in ("status", "result", "error_kind", "generation")}
                self._history.add("told", root_id=tree.id, **told)
                return root
        return None

    def _watch(self, tree: baton.TreeHandle) -> None:
        heard: list[list[Any]] = []
        while not self._over.is_set():
            with self._surprises("events"):
                for event in tree.events(after=len(heard)):
                    heard.append([event.seq, event.type])
                break
        self._history.add("heard", root_id=tree.id, events=heard)

    def _order(self, tree: baton.TreeHandle, order: str, baton_id: str, call: Callable[[], None], value: Any = None) -> None:
        """Ask until there is an answer; it may have been carried out all the same."""
        outcome, why = "unknown", ""
        while outcome == "unknown" and not self._over.is_set():
            try:
                with self._surprises(order):
                    call()
                    outcome = "done"
            except baton.NotAllowed as error:
                outcome, why = "refused", str(error)
            self._history.add("ordered", order=order, root_id=tree.id, baton_id=baton_id, value=value, outcome=outcome, why=why)

    # ------------------------------------------------------------ others

    def _answer(self, chance: random.Random) -> None:
        answered: set[str] = set()
        while not self._over.wait(chance.uniform(*ANSWER_PAUSES)):
            with self._surprises("list"):
                for question in self._client.list(waiting=True):
                    if question.id not in answered:
                        answered.add(question.id)
                        tree, value = self._client.get(question.root_id), question.context["value"]
                        self._order(tree, "answer", question.id, lambda: tree.answer(question.id, value), value)  # noqa: B023

    def _look(self) -> None:
        engine = create_engine(self._url.replace("postgresql://", "postgresql+psycopg://"))
        last: dict[str, tuple[Any, ...]] = {}
        while not self._over.wait(LOOK_SECONDS):
            with suppress(SQLAlchemyError), engine.connect() as connection:
                for root_id, *row in connection.execute(text("SELECT root_id, epoch, owner, seq FROM trees")).all():
                    if last.get(root_id) != tuple(row):
                        last[root_id] = tuple(row)
                        self._history.add("seen", root_id=root_id, **dict(zip(("epoch", "owner", "seq"), row, strict=True)))
        engine.dispose()

    def _surprises(self, call: str) -> "_Surprises":
        return _Surprises(self._history, call)


class _Surprises:
    """What a call raised is written down; an exception of ours that says "wait and try again" is none."""

    def __init__(self, history: History, call: str) -> None:
        self._history = history
        self._call = call

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is None or isinstance(error, baton.NotAllowed | baton.WaitTimeout):
            return False
        kind = "refused" if isinstance(error, baton.BatonError) else "surprised"
        self._history.add(kind, call=self._call, error=f"{type(error).__name__}: {error}"[:500])
        return isinstance(error, Exception)


def _thread(target: Callable[..., None], *arguments: Any) -> threading.Thread:
    return threading.Thread(target=target, args=arguments, daemon=True)
