"""Every exception of the project, as one tree.

    BatonError
    ├── InvalidInput        a value that was given cannot be used (also a ValueError)
    ├── NotFound            no baton or tree of that id (also a LookupError)
    ├── NotAllowed          the state does not permit it: it ended, it does not wait, its parent is running
    ├── BatonFailed         the task whose result was asked for has failed
    │   └── BatonCancelled  … because somebody or something cancelled it
    ├── WaitTimeout         the wait ended, the task goes on (also a TimeoutError)
    ├── CannotConnect       no database or no Ray cluster behind an address
    │   ├── DatabaseUnusable   wrong URL, no permission, full disk, newer schema
    │   ├── ClusterUnusable    nothing answers, or it works for another database
    │   └── ModelUnusable      no model server answers, or it does not take the key
    ├── Retry               raised by a worker: "try me again" (see `Constraints.max_retries`)
    ├── InvalidTransition   an event that the transition table does not know: a fault of ours
    ├── ModelError          inside the agent: a model call failed, and what that means (agent/model.py)
    └── Moved               inside the runtime: this owner does not own that tree (any more)

Each message says what happened, to what, and what to do. Each exception survives `pickle`: its arguments are
the arguments of its constructor, and the sentence is made when it is asked for.
"""


class BatonError(Exception):
    """The root of the tree; `str()` is one line for a person."""


class InvalidInput(BatonError, ValueError):
    """A value that was given cannot be used.

    Args:
        what: the thing, as the user would call it (`"goal"`, `"context.items[3]"`, `"--budget"`).
        why: what is wrong with it, and what to do.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class NotFound(BatonError, LookupError):
    """No baton or tree has that id in this database."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"no baton {self.id} in this database; 'baton ls' lists what there is"


class NotAllowed(BatonError):
    """The state of a baton does not permit what was asked of it."""

    def __init__(self, id: str, why: str) -> None:
        super().__init__(id, why)
        self.id = id
        self.why = why

    def __str__(self) -> str:
        return f"baton {self.id} {self.why}"


class BatonFailed(BatonError):
    """The task whose result was asked for has failed.

    Attributes:
        id: the root's id. error: what happened. error_kind: one of `ErrorKind`.
    """

    def __init__(self, id: str, error: str, error_kind: str) -> None:
        super().__init__(id, error, error_kind)
        self.id = id
        self.error = error
        self.error_kind = error_kind

    def __str__(self) -> str:
        return f"baton {self.id} failed ({self.error_kind}): {self.error}; 'baton retry {self.id}' starts it again"


class BatonCancelled(BatonFailed):
    """The task whose result was asked for was cancelled."""

    def __str__(self) -> str:
        return f"baton {self.id} was cancelled ({self.error}); 'baton retry {self.id}' starts it again"


class WaitTimeout(BatonError, TimeoutError):
    """The wait for a result ended before the task did; the task goes on."""

    def __init__(self, id: str, seconds: float) -> None:
        super().__init__(id, seconds)
        self.id = id
        self.seconds = seconds

    def __str__(self) -> str:
        return f"baton {self.id} has not ended within {self.seconds:g} s; it goes on: 'baton watch {self.id}'"


class CannotConnect(BatonError):
    """Nothing usable answers at an address."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class DatabaseUnusable(CannotConnect):
    """The database cannot be opened, read or written as it must be."""


class ClusterUnusable(CannotConnect):
    """No Ray cluster answers, or the one that does works for another database."""


class ModelUnusable(CannotConnect):
    """No model answers at an address, it refuses the key, or the local model cannot be started."""


class Retry(BatonError):
    """Raised by a worker that wants to be run again; needs `max_retries` above 0.

    Args:
        why: what failed this time.
        after: seconds to wait at least; None leaves it to the backoff.
    """

    def __init__(self, why: str = "the worker asked to be retried", after: float | None = None) -> None:
        super().__init__(why, after)
        self.why = why
        self.after = after

    def __str__(self) -> str:
        return self.why


class InvalidTransition(BatonError):
    """An event met a status from which the transition table knows no way; nothing was changed."""

    def __init__(self, id: str, status: str, event: str) -> None:
        super().__init__(id, status, event)
        self.id = id
        self.status = status
        self.event = event

    def __str__(self) -> str:
        return f"baton {self.id} is {self.status}: '{self.event}' leads nowhere from there; please report this story"


class Moved(BatonError):
    """This owner does not own that tree at that epoch: ask the directory again."""

    def __init__(self, root_id: str, epoch: int) -> None:
        super().__init__(root_id, epoch)
        self.root_id = root_id
        self.epoch = epoch

    def __str__(self) -> str:
        return f"tree {self.root_id} at epoch {self.epoch} is not owned here; ask the directory again"
