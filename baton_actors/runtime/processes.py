"""Worker processes by Ray: one task for each run of a tree."""

import asyncio
from collections.abc import Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import LocalRayletDiedError, NodeDiedError, TaskCancelledError

from baton_actors.commands import LossCause
from baton_actors.runtime.dispatch import Run
from baton_actors.runtime.wire import Instructions, Lease, Luggage
from baton_actors.runtime.worker import run_assignments

# The tree counts attempts itself, so Ray repeats nothing.
_shared = ray.remote(max_retries=0)(run_assignments)
_fresh = ray.remote(max_retries=0, max_calls=1)(run_assignments)
_OWN_OPTIONS = frozenset({"num_cpus", "num_gpus", "memory"})


class RayProcesses:
    """The processes of one tree.

    Args:
        owner: handle of the owner actor, which the runs report to. ended: told when a run's process has ended.
    """

    def __init__(self, owner: ActorHandle[Any], ended: Callable[[Run, LossCause | None, str], None]) -> None:
        self._owner = owner
        self._ended = ended
        self._tasks: dict[int, ray.ObjectRef[None]] = {}
        self._luggage = Luggage()

    def pack(self, archive: tuple[str, bytes] | None, agent: dict[str, Any]) -> None:
        """See `Processes.pack`."""
        self._luggage = Luggage(None if archive is None else (archive[0], ray.put(archive[1])), agent)

    def start(self, run: Run, lease: Lease, first: Instructions) -> None:
        """Submit the task of a run."""
        amounts = dict(run.shape.resources)
        options = {name: amount for name, amount in amounts.items() if name in _OWN_OPTIONS}
        custom = {name: amount for name, amount in amounts.items() if name not in _OWN_OPTIONS}
        task = (_fresh if run.shape.fresh else _shared).options(**options, resources=custom, name="baton run")
        reference = task.remote(self._owner, lease, first, self._luggage)
        self._tasks[run.id] = reference
        asyncio.wrap_future(reference.future()).add_done_callback(lambda future: self._task_ended(run, future))

    def kill(self, run: Run) -> None:
        """End the process of a run that is still there; once, since a second cancel could hit the process's next task."""
        if reference := self._tasks.pop(run.id, None):
            ray.cancel(reference, force=True)

    def _task_ended(self, run: Run, future: "asyncio.Future[None]") -> None:
        self._tasks.pop(run.id, None)
        error = None if future.cancelled() else future.exception()
        self._ended(run, _cause(error), "" if error is None else str(error))


def _cause(error: BaseException | None) -> LossCause | None:
    match error:
        case None:
            return None
        case TaskCancelledError():
            return "owner"
        case NodeDiedError() | LocalRayletDiedError():
            return "node"
        case _:
            return "process"
