"""For programs: connect to a cluster, submit tasks, follow them, read what came of them.

import baton_actors as baton
client = baton.connect()
tree = client.submit("sum the numbers", context={"to": 100}, worker=my_function)
print(tree.result())
"""

import asyncio
import builtins
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError

from baton_actors.agent.local import introduction as introduction_of
from baton_actors.baton import (
    Baton,
    BreakdownPolicy,
    ErrorKind,
    Notify,
    OnChildFailure,
    Status,
)
from baton_actors.commands import Answer, Cancel, Command, Release, Retry
from baton_actors.errors import BatonCancelled, BatonError, BatonFailed, ClusterUnusable, DatabaseUnusable, InvalidInput, WaitTimeout
from baton_actors.events import TREE_ENDS, Event, Whisper
from baton_actors.jsonable import checked, checked_text
from baton_actors.runtime import cluster, reaching
from baton_actors.runtime.directory import About, Placed
from baton_actors.runtime.local_model import start_local
from baton_actors.runtime.opening import Submission
from baton_actors.runtime.preparing import checked_budget, prepared
from baton_actors.runtime.publication import Found, Page
from baton_actors.runtime.reaching import Reach
from baton_actors.settings import Settings, load_settings, without_password
from baton_actors.snapshot import Snapshot
from baton_actors.store import Store

__all__ = ["Client", "EventStream", "TreeHandle", "connect", "introduction", "prepared"]

#: Seconds that a client waits for a database or an actor that comes back, before it says so.
PATIENCE_SECONDS = 10.0
#: Events read from the database at a time.
PAGE = 1_000
#: Longest pause between two looks for an actor that is being restarted.
LONGEST_PAUSE_SECONDS = 0.5
_GONE = Found("gone")
_MOVED = Page(moved=True)


def connect(
    *,
    database_url: str | None = None,
    address: str | None = None,
    start: bool = True,
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> "Client":
    """Connect to the Ray cluster of this program, of RAY_ADDRESS, of `ray start`; else start a private one.

    Args:
        database_url: instead of BATON_DATABASE_URL. address: instead of RAY_ADDRESS.
        start: whether a private cluster may be started; it ends with this program.
        progress: told, in a few words, what takes its time.
        settings: any other field of `Settings`.

    Raises:
        InvalidInput: a setting cannot be used.
        ClusterUnusable, DatabaseUnusable: what was found, and what to do.
    """
    say = progress or (lambda _: None)
    loaded = load_settings(database_url=database_url, **settings)
    found = cluster.find(address)
    fault = _fault_of(loaded.database) if found is None or loaded.database_url is not None else None
    if fault is not None and found is None:
        raise fault
    joined = cluster.join(found, start=start, progress=say)
    try:
        if fault is not None and not cluster.has_directory(loaded.namespace):
            raise fault  # nobody could use it; a cluster that works already may reach what is out of reach from here
        say("waiting for the directory")
        directory, about = cluster.open_directory(loaded, loaded.database, private=joined.private)
        if loaded.database_url is not None and without_password(loaded.database) != about.database:
            raise ClusterUnusable(
                without_password(loaded.database),
                f"this cluster works on {about.database}; set BATON_DATABASE_URL to that, or BATON_NAMESPACE to another name",
            )
        return Client(loaded, directory, about, joined, say)
    except BaseException:
        if joined.ours:
            ray.shutdown()
        raise


def introduction(task: Submission) -> str | None:
    """What a person must know of the model that a task gets by default; None if one was chosen."""
    return introduction_of(task.root.model or "") if task.asks_local_model else None


def _fault_of(database: str) -> DatabaseUnusable | None:
    """Give the database its schema; why it cannot be used from here, if that is so."""
    try:
        store = Store(database, patience=PATIENCE_SECONDS)
        try:
            store.upgrade()
        finally:
            store.close()
    except DatabaseUnusable as fault:
        return fault
    return None


class Client:
    """A connection to one cluster and its database; a context manager. Made by `connect`.

    Attributes:
        private: whether it started the cluster, which then ends with `close`.
    """

    def __init__(
        self, settings: Settings, directory: ActorHandle[Any], about: About, joined: cluster.Joined, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self.private = joined.private
        self._settings = settings
        self._reach = Reach(directory, self._directory_again)
        self._about = about
        self._joined = joined
        self._reader: ActorHandle[Any] | None = None
        self._store: Store | None = None
        self._find_database()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; a private cluster ends, and what is unfinished in it waits for `baton resume`."""
        if not self._reach.close():
            return
        if self._joined.ours:
            ray.shutdown()
        if self._store is not None:
            if self.private:
                with suppress(BatonError):  # the lease ends by itself too, in 30 s
                    self._store.leave(self._about.cluster_id)
            self._store.close()

    # ------------------------------------------------------------ tasks

    def submit(
        self,
        goal: str,
        *,
        context: Mapping[str, Any] | None = None,
        tools: Sequence[str | Callable[..., Any]] | None = None,
        prompt: str | None = None,
        worker: str | Callable[..., Any] | None = None,
        model: str | None = None,
        max_rounds: int | None = None,
        timeout_hint: float | None = None,
        breakdown: BreakdownPolicy | None = None,
        on_child_failure: OnChildFailure | None = None,
        max_retries: int | None = None,
        retry_on: Sequence[str] | None = None,
        resources: Mapping[str, Any] | None = None,
        channel: str | None = None,
        notify: Notify | bool | None = None,
        hold: bool = False,
        not_before: int | None = None,
        deadline: int | None = None,
        idempotency_key: str | None = None,
        budget: Mapping[str, Any] | None = None,
        result_type: Mapping[str, Any] | None = None,
    ) -> "TreeHandle":
        """Hand in a task; returns when it is durable.

        Args:
            goal: what to do; not blank. worker: the model's `"agent"` if it is None, a function of (baton, ctx), `"module:function"`,
                `"human"`, `"external"`. tools: functions with type hints, `"module:function"`, or names of built-in ones.
            hold: create it without starting it. budget: see `Budget`; the whole tree shares it.
            idempotency_key: a second submission with the same key is the first tree.
            The others are as in `Child` and `Constraints`.

        Raises:
            InvalidInput: names what cannot be used; nothing was written.
            ModelUnusable: an agent's model does not answer, refuses the key, or cannot be fetched.
        """
        task = prepared(
            self._settings,
            goal,
            context=context,
            tools=tools,
            prompt=prompt,
            worker=worker,
            model=model,
            max_rounds=max_rounds,
            timeout_hint=timeout_hint,
            breakdown=breakdown,
            on_child_failure=on_child_failure,
            max_retries=max_retries,
            retry_on=retry_on,
            resources=resources,
            channel=channel,
            notify=notify,
            hold=hold,
            not_before=not_before,
            deadline=deadline,
            idempotency_key=idempotency_key,
            budget=budget,
            result_type=result_type,
            progress=self._say,
        )
        if (introduced := introduction(task)) is not None:
            print(introduced, file=sys.stderr)
        return self.hand_in(task)

    def hand_in(self, task: Submission) -> "TreeHandle":
        """Hand in a task that `prepared` made; the second half of `submit`."""
        self._reach.check_open()
        if task.asks_local_model:
            start_local(self._say)
        placed: Placed = self._reach.ask("submit", task)
        return TreeHandle(self, placed.root_id, placed.owner)

    def map(self, goals: Iterable[str], **fields: Any) -> Iterator[Any]:
        """Submit many tasks at once and yield their results in order; `fields` as for `submit`, the same for all.

        Raises:
            BatonFailed: when the result of one that failed is reached.
        """
        trees = [self.submit(goal, **fields) for goal in goals]
        return (tree.result() for tree in trees)

    def get(self, id: str) -> "TreeHandle":
        """The tree of a baton, running or ended.

        Raises:
            NotFound: there is none of that id.
        """
        return TreeHandle(self, self._read("root_of", id), None)

    def list(self, status: str | None = None, waiting: bool = False) -> builtins.list[Baton]:
        """The roots of all trees, newest first, perhaps only those of a status; or the batons that wait for somebody outside."""
        if status is not None and status not in set(Status):
            raise InvalidInput("status", f"{status!r} is none; there are {', '.join(Status)}")
        batons: builtins.list[Baton] = self._read("waiting") if waiting else self._read("trees", status)
        return batons

    def unfinished(self) -> builtins.list[str]:
        """Open trees that nobody works on: their cluster is gone. `resume` takes them over."""
        roots: builtins.list[str] = self._read("abandoned")
        return roots

    def resume(self, id: str | None = None, progress: Callable[[str], None] | None = None) -> "builtins.list[TreeHandle]":
        """Take over the tree of a baton, or all unfinished ones, from clusters that are gone; waits until their lease is over.

        Raises:
            NotFound: there is no such baton.
        """
        roots = self.unfinished() if id is None else [self._read("root_of", id)]
        for root in roots:
            self._take_over(root, progress or (lambda _: None))
        return [TreeHandle(self, root, None) for root in roots]

    def _take_over(self, root: str, say: Callable[[str], None]) -> None:
        while (tree := self._read("tree", root)).status == "open" and tree.cluster_id != self._about.cluster_id:
            left = self._read("lease_left", root)
            if left is None:
                return
            if left > 0:
                say(f"{root}: its last cluster may still be alive, waiting {left:.0f} s for the lease to end")
                time.sleep(min(left + 0.05, 1.0))
            else:
                self._reach.ask("adopt", [root])

    # ------------------------------------------------------------ reading

    def _find_database(self) -> None:
        """Read the database directly if that can be done from here, else through an actor."""
        url = self._about.database
        own = self._settings.database
        store = Store(own if without_password(own) == url else url, patience=PATIENCE_SECONDS)
        if url.startswith("sqlite") and self._about.host != socket.gethostname():
            reachable = False
        else:
            try:
                store.upgrade()
                reachable = True
            except DatabaseUnusable:
                reachable = False
        if reachable:
            self._store = store

    def _read(self, name: str, *arguments: Any) -> Any:
        if self._store is not None:
            return getattr(self._store, name)(*arguments)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._reader is None:
                self._reader = cluster.open_reader(self._settings, self._about.database)
            try:
                return reaching.got(self._reader.read.remote(name, *arguments), reaching.ORDER_SECONDS)
            except GetTimeoutError:
                raise ClusterUnusable("the reader actor", "does not answer; 'baton doctor' looks closer") from None
            except RayActorError as error:
                if time.monotonic() > until:
                    raise ClusterUnusable("the reader actor", f"is gone ({type(error).__name__}); 'baton doctor' looks closer") from None
                if isinstance(error, ActorDiedError):
                    self._reader = None
                time.sleep(LONGEST_PAUSE_SECONDS)

    # ------------------------------------------------------------ the directory

    @property
    def _directory(self) -> ActorHandle[Any]:
        """The one that is used now; what it counts is for tests and benchmarks."""
        return self._reach.handle

    def _directory_again(self) -> ActorHandle[Any]:
        """Another directory of the same cluster and database, in the place of one that is dead for good.

        Raises:
            ClusterUnusable: there can be none.
        """
        directory, about = cluster.open_directory(self._settings, self._about.database, private=not self._about.adopts)
        if about.database != self._about.database:
            raise ClusterUnusable(self._about.database, f"this cluster works on {about.database} by now; connect again")
        return directory

    def _order(self, root: str, command: Command) -> None:
        answer = self._reach.ask("order", root, command, secrets.token_hex(8))
        if answer is not None:
            raise answer


class TreeHandle:
    """One tree: wait for it, follow it, steer it. `await tree` is its result.

    Attributes:
        id: of the root.
    """

    def __init__(self, client: Client, id: str, owner: ActorHandle[Any] | None) -> None:
        self.id = id
        self._client = client
        self._owner = owner

    def __repr__(self) -> str:
        return f"<TreeHandle {self.id}>"

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    def result(self, timeout: float | None = None) -> Any:
        """The root's result, as soon as there is one.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            BatonFailed, BatonCancelled: it has failed. WaitTimeout: not ended yet; the task goes on.
        """
        return _result(self.wait(timeout))

    def wait(self, timeout: float | None = None) -> Baton:
        """The root when the tree has ended, failed or not.

        Raises:
            WaitTimeout: not ended yet; the task goes on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pauses = _pauses()
        while True:
            self._client._reach.check_open()
            try:
                if self._owner is None:
                    place = self._client._reach.where(self.id, until)
                    if place.state == "gone":
                        root: Baton = self._client._read("baton", self.id)
                        return root
                    self._owner = place.value
                left = None if until is None else max(0.0, until - time.monotonic())
                found = reaching.got(self._owner.outcome.remote(self.id), left)
            except GetTimeoutError:
                raise WaitTimeout(self.id, timeout or 0.0) from None
            except RayActorError:
                found = _GONE
            if found.state == "here":
                return Baton.model_validate(found.value)
            if found.state == "gone":
                self._owner = None
                time.sleep(next(pauses))

    async def _result_async(self) -> Any:
        pauses = _pauses()
        while True:
            self._client._reach.check_open()
            try:
                if self._owner is None:
                    place = await self._client._reach.where_async(self.id)
                    if place.state == "gone":
                        return _result(await asyncio.to_thread(self._client._read, "baton", self.id))
                    self._owner = place.value
                found = await reaching.answer(self._owner.outcome.remote(self.id))
            except RayActorError:
                found = _GONE
            if found.state == "here":
                return _result(Baton.model_validate(found.value))
            if found.state == "gone":
                self._owner = None
                await asyncio.sleep(next(pauses))

    def events(self, after: int = 0, beside: Callable[[Whisper], None] | None = None) -> "EventStream":
        """Everything after a cursor, then live, up to the event that ends the tree; for `for` and `async for`.

        Args:
            beside: called, while the stream is read, with what agents are doing, and at first with what they do just then. Some
                of it is lost when the tree moves; a `model` or `tool` takes the place of what was told of that baton before.

        Raises:
            InvalidInput: the cursor is no number, negative, or beyond the last event.
        """
        if type(after) is not int or after < 0:
            raise InvalidInput("after", f"{after!r} is no cursor; give the seq of the last event you have, 0 for all")
        last = self._client._read("tree", self.id).seq
        if after > last:
            raise InvalidInput("after", f"{after} is beyond the last event, {last}")
        return EventStream(self, after, beside)

    def snapshot(self) -> Snapshot:
        """The whole tree at one moment, read from the database."""
        snapshot: Snapshot = self._client._read("snapshot", self.id)
        return snapshot

    def cancel(self, reason: str = "cancelled by the user", baton_id: str | None = None) -> None:
        """End the tree, or one baton and all below it.

        Raises:
            NotAllowed: it has already ended.
        """
        self._client._order(self.id, Cancel(_now(), baton_id or self.id, checked_text(reason, "reason")))

    def retry(self, baton_id: str | None = None, budget: Mapping[str, Any] | None = None) -> None:
        """Start a failed tree, or one failed baton of it, again; what has completed is kept. `budget` is added to the tree's.

        Raises:
            NotAllowed: it has not failed, or what stands above it has gone on.
        """
        self._client._order(self.id, Retry(_now(), baton_id or self.id, checked_budget(budget)))

    def answer(self, baton_id: str, value: Any) -> None:
        """Answer a baton that waits for a human or an outside system; the same answer twice is harmless.

        Raises:
            NotAllowed: it does not wait. InvalidInput: the value is not JSON.
        """
        self._client._order(self.id, Answer(_now(), baton_id, checked(value, "answer")))

    def release(self, baton_id: str | None = None) -> None:
        """Start a baton that was created held; harmless when repeated."""
        self._client._order(self.id, Release(_now(), baton_id or self.id))


class EventStream:
    """The events of one tree after a cursor, without gap or repeat, over restarts of its owner. Ends after the terminal one.

    Attributes:
        cursor: seq of the last event that was given out.
    """

    def __init__(self, tree: TreeHandle, after: int, beside: Callable[[Whisper], None] | None = None) -> None:
        self.cursor = after
        self._beside = beside
        self._heard = None if beside is None else 0
        self._tree = tree
        self._client = tree._client
        self._owner: ActorHandle[Any] | None = tree._owner

    def __iter__(self) -> Iterator[Event]:
        while page := self._next_page():
            for event in page:
                self.cursor = event.seq
                yield event
            if page[-1].type in TREE_ENDS and self._is_last():
                return

    async def __aiter__(self) -> AsyncIterator[Event]:
        while page := await self._next_page_async():
            for event in page:
                self.cursor = event.seq
                yield event
            if page[-1].type in TREE_ENDS and await asyncio.to_thread(self._is_last):
                return

    def _is_last(self) -> bool:
        """Whether a terminal event has ended the tree, or a retry has re-opened it since."""
        last: int = self._client._read("tree", self._tree.id).seq
        return self.cursor >= last

    def _stored(self) -> list[Event]:
        events: list[Event] = self._client._read("events", self._tree.id, self.cursor, PAGE)
        return events

    def _hear(self, page: Page) -> None:
        """Tell what was whispered; the next owner of the tree numbers from the beginning."""
        if self._beside is not None:
            self._heard = 0 if page.moved else page.heard
            for whisper in page.beside:
                self._beside(whisper)

    def _next_page(self) -> list[Event]:
        """What comes next, as soon as there is anything; nothing once the tree has ended and all was given out."""
        pauses = _pauses()
        while True:
            self._client._reach.check_open()
            try:
                if self._owner is None:
                    place = self._client._reach.where(self._tree.id, after=self.cursor)
                    if place.state in ("gone", "news"):
                        return self._stored()
                    self._owner = place.value
                page = reaching.got(self._owner.events.remote(self._tree.id, self.cursor, self._heard))
            except RayActorError:
                page = _MOVED
            self._hear(page)
            if page.events:
                return [Event(*event) for event in page.events]
            if page.behind and (stored := self._stored()):
                return stored
            if page.moved:
                self._owner = None
                time.sleep(next(pauses))

    async def _next_page_async(self) -> list[Event]:
        pauses = _pauses()
        while True:
            self._client._reach.check_open()
            try:
                if self._owner is None:
                    place = await self._client._reach.where_async(self._tree.id, after=self.cursor)
                    if place.state in ("gone", "news"):
                        return await asyncio.to_thread(self._stored)
                    self._owner = place.value
                page = await reaching.answer(self._owner.events.remote(self._tree.id, self.cursor, self._heard))
            except RayActorError:
                page = _MOVED
            self._hear(page)
            if page.events:
                return [Event(*event) for event in page.events]
            if page.behind and (stored := await asyncio.to_thread(self._stored)):
                return stored
            if page.moved:
                self._owner = None
                await asyncio.sleep(next(pauses))


def _pauses() -> Iterator[float]:
    """Seconds between two looks for an owner that has moved or is being restarted: short at first."""
    pause = 0.02
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _result(root: Baton) -> Any:
    if root.status is Status.COMPLETED:
        return root.result
    failure = BatonCancelled if root.error_kind is ErrorKind.CANCELLED else BatonFailed
    raise failure(root.id, root.error or "", root.error_kind or ErrorKind.ERROR)


def _now() -> int:
    return time.time_ns() // 1_000_000
