"""Which baton goes to which run: the owner's bookkeeping of its worker processes, without Ray and without a clock.

Batons that ask for nothing special share processes: they spread over all cores first, then fill each process up to
`SHARED_LIMIT` at a time, so that a thousand calls to a model wait in a few processes. A baton with resources of its own, or
one that is started alone after a crash, has a process to itself for as long as it runs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from baton_actors.baton import AGENT, Baton
from baton_actors.runtime.wire import Instructions

#: Batons that one shared process runs at the same time.
SHARED_LIMIT = 256
#: Runs of one shape that may wait for Ray's resources; more would only lengthen its queue.
OWN_PROCESS_RUNS = 32
#: Agents in a process, on the average, from which on another process is opened for those that come.
AGENTS_A_PROCESS = 16
#: CPUs that a shared run asks of Ray: never 0 (a process for each task), and small, because most of its batons wait.
SHARED_CPUS = 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of process a baton needs.

    Attributes:
        resources: Ray's options, sorted. limit: batons at a time. fresh: a new process for each.
        waiting: the baton mostly waits for somebody else, so it is not held back until another process has started.
    """

    resources: tuple[tuple[str, float], ...]
    limit: int
    fresh: bool = False
    waiting: bool = False

    @property
    def process(self) -> "Shape":
        """The shape of the process itself, which takes batons that wait and batons that do not."""
        return replace(self, waiting=False) if self.waiting else self


SHARED = Shape((("num_cpus", SHARED_CPUS),), SHARED_LIMIT)
#: Agents wait for their model, in the same processes.
AGENTS = replace(SHARED, waiting=True)
ALONE = Shape((("num_cpus", SHARED_CPUS),), 1)


def shape_of(baton: Baton, alone: bool) -> Shape:
    """The shape of the process in which a baton is to run."""
    if not baton.resources:
        return ALONE if alone else AGENTS if baton.worker == AGENT else SHARED
    amounts = {name: float(amount) for name, amount in baton.resources.items() if name != "isolate"}
    return Shape(tuple(sorted({"num_cpus": 1.0, **amounts}.items())), 1, fresh=bool(baton.resources.get("isolate")))


@dataclass(slots=True)
class Flight:
    """One attempt in a run.

    Attributes:
        attempt: its number. patience: seconds without a sign of life until it is lost.
        since: loop time of the last sign; None before the run's first.
    """

    attempt: int
    patience: float
    since: float | None = None


@dataclass(slots=True)
class Run:
    """One worker process at work for this tree, as its owner sees it.

    Attributes:
        in_flight: attempts by baton id that have not reported an outcome. served: how many it was given in all.
        started: it has a process. connected: it has made its first call. stuck: something in it shows
        no progress. closing: it was told to end, or is about to be. stopping: what has the process to itself is told to stop.
        opened_after: how many starts in a row had failed by then.
        assignments, stops: what the next instructions will say. sent: the last ones given, in case they were lost.
        last_report: number of the last report that is committed.
    """

    id: int
    shape: Shape
    in_flight: dict[str, Flight] = field(default_factory=dict)
    served: int = 0
    started: bool = False
    connected: bool = False
    stuck: bool = False
    closing: bool = False
    stopping: bool = False
    opened_after: int = 0
    assignments: list[dict[str, Any]] = field(default_factory=list)
    stops: list[tuple[str, int]] = field(default_factory=list)
    known_code: set[str] = field(default_factory=set)
    sent: Instructions = field(default_factory=lambda: Instructions(0))
    last_report: int = 0

    @property
    def alone(self) -> bool:
        """Whether a baton in it has the process to itself."""
        return self.shape.limit == 1

    @property
    def has_news(self) -> bool:
        """Whether there is anything to instruct."""
        return bool(self.assignments or self.stops or self.closing)


class Dispatcher:
    """The ready batons of one tree and the runs that take them.

    Attributes:
        runs: by id. failed_starts: how many processes of a shape in a row ended before their first call, those that were
        started side by side counted once. paused: shapes for which none is started for now.

    Args:
        cores: CPUs of the cluster: so many shared runs a tree has at most.
    """

    def __init__(self, cores: int) -> None:
        self._cores = max(1, cores)
        self._ready: dict[Shape, deque[str]] = {}
        self._next_id = 1
        self.runs: dict[int, Run] = {}
        self.failed_starts: dict[Shape, int] = {}
        self.paused: set[Shape] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nothing in flight."""
        return not any(self._ready.values()) and not any(run.in_flight for run in self.runs.values())

    def ready(self, baton_id: str, shape: Shape) -> None:
        """A baton waits for a worker."""
        self._ready.setdefault(shape, deque()).append(baton_id)

    def holder(self, baton_id: str) -> Run | None:
        """The run in which a baton is in flight."""
        return next((run for run in self.runs.values() if baton_id in run.in_flight), None)

    def waits(self, shape: Shape) -> bool:
        """Whether something is ready for such a process."""
        return any(ready for wanted, ready in self._ready.items() if wanted.process == shape)

    def take_ready(self, shape: Shape) -> list[str]:
        """Take all that is ready for such a process."""
        fitting = [wanted for wanted in self._ready if wanted.process == shape]
        return [baton_id for wanted in fitting for baton_id in self._ready.pop(wanted)]

    def forget_ready(self) -> None:
        """Drop what waits: the tree was loaded again and will say what is ready."""
        self._ready.clear()

    def plan(self) -> Iterator[tuple[str, Run]]:
        """Take ready batons, each with the run it goes to; the caller starts it, or drops it if it no longer waits.

        The first run of all is handed its share with its start. Others are opened empty and take theirs when they have
        connected: until then what waits goes to whoever is free, and nothing counts as started that has no process.
        """
        for shape, ready in self._ready.items():
            may_open = shape.process not in self.paused
            first = self.open(shape) if may_open and ready and shape.process == SHARED and not self._of(shape) else None
            while ready and (run := self._taker(shape, len(ready), first)):
                yield ready.popleft(), run
            if may_open:
                for _ in range(self._missing_runs(shape, len(ready))):
                    self.open(shape)

    def _missing_runs(self, shape: Shape, waiting: int) -> int:
        """How many more runs are to be opened when so many batons are left over."""
        runs = self._of(shape)
        if shape.waiting:
            total = waiting + sum(len(run.in_flight) for run in runs)
            return min(self._most_runs(shape), ceil(total / AGENTS_A_PROCESS)) - len(runs)
        coming = sum(not run.connected for run in runs)
        return min(self._most_runs(shape) - len(runs), waiting - coming)

    def _of(self, shape: Shape) -> list[Run]:
        return [run for run in self.runs.values() if run.shape == shape.process and not (run.closing or run.stuck or run.stopping)]

    def _taker(self, shape: Shape, waiting: int, first: Run | None) -> Run | None:
        """The least busy run that takes one more; none takes more than an equal share, so that all cores get some work to do."""
        runs = self._of(shape)
        takers = [run for run in runs if (run.connected or run is first) and not (shape.fresh and run.served)]
        best = min(takers, key=lambda run: len(run.in_flight), default=None)
        if best is None:
            return None
        if shape.waiting:
            return best if len(best.in_flight) < shape.limit else None
        total = waiting + sum(len(run.in_flight) for run in runs)
        share = ceil(total / min(self._most_runs(shape), total))
        return best if len(best.in_flight) < min(shape.limit, share) else None

    def _most_runs(self, shape: Shape) -> int:
        if shape.process == SHARED:
            return self._cores
        return 4 * self._cores if shape == ALONE else OWN_PROCESS_RUNS

    def open(self, shape: Shape) -> Run:
        """A new run; its process is the caller's to start."""
        run = Run(self._next_id, shape.process, opened_after=self.failed_starts.get(shape.process, 0))
        self._next_id += 1
        self.runs[run.id] = run
        return run
