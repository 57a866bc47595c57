"""The values that pass between the parts: the baton, what a child is made from, and how a run can end.

All of them are frozen. Nothing here decides anything; that is `machine.py`.
"""

import hashlib
import re
from base64 import b32encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from baton_actors.errors import InvalidInput
from baton_actors.jsonable import checked, checked_text


class Status(StrEnum):
    """Where a baton stands; the first three are live, the last two have ended."""

    PENDING = "pending"
    RUNNING = "running"
    SPAWNED = "spawned"
    COMPLETED = "completed"
    FAILED = "failed"


LIVE = frozenset({Status.PENDING, Status.RUNNING, Status.SPAWNED})
ENDED = frozenset({Status.COMPLETED, Status.FAILED})


class ErrorKind(StrEnum):
    """Why a baton failed."""

    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    REJECTED = "rejected"
    BUDGET = "budget"
    REFUSED = "refused"
    INVALID_RESULT = "invalid_result"


BreakdownPolicy = Literal["auto", "never", "always", "estimate", "judge", "as_needed"]
OnChildFailure = Literal["resume", "fail_fast"]
Notify = Literal["off", "final", "progress"]

#: How `notify` is kept in SQL: its place here.
NOTIFY_LEVELS: tuple[str, ...] = get_args(Notify)
#: Workers that wait for somebody outside; never dispatched, never lost.
PASSIVE_WORKERS = frozenset({"human", "external"})
AGENT = "agent"
#: Milliseconds since 1970; the year 10889, within what every database and JSON reader holds.
LATEST_TIME = 2**48
_RAY_NAMES = {"CPU": "num_cpus", "GPU": "num_gpus", "object_store_memory": "memory"}
_WORKER = re.compile(r"agent|human|external|code:[0-9a-f]{64}|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Frozen(BaseModel):
    """A value with named fields that refuses unknown ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Constraints(Frozen):
    """The bounds of one task.

    Attributes:
        max_rounds: model calls.
        timeout_hint: seconds of one execution window; a run without a sign of life for four of them (at least 120 s) is lost.
        breakdown: who decides whether an agent's task is broken down.
        on_child_failure: `resume` waits for all children, `fail_fast` cancels the others first.
        max_retries: how often a retryable failure is tried again in one generation.
        retry_on: names of exception classes that are retryable (`"TimeoutError"`, `"requests.HTTPError"`), beside `Retry`.
    """

    max_rounds: int = Field(6, ge=1, le=10_000)
    timeout_hint: float = Field(25, gt=0, le=7 * 86_400, allow_inf_nan=False)
    breakdown: BreakdownPolicy = "auto"
    on_child_failure: OnChildFailure = "resume"
    max_retries: int = Field(0, ge=0, le=1_000)
    retry_on: list[str] = []


class Budget(Frozen):
    """What a tree may spend, as one pool; None is no limit.

    Attributes:
        batons: how many, the root included. rounds: model calls. tokens: in and out. cost: in the price table's currency.
        seconds: from the submission (or a retry) to the end.
    """

    batons: int | None = Field(None, ge=1)
    rounds: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    cost: float | None = Field(None, gt=0, allow_inf_nan=False)
    seconds: float | None = Field(None, gt=0, lt=LATEST_TIME / 1000, allow_inf_nan=False)

    def plus(self, more: "Budget") -> "Budget":
        """This budget with the limits of another added; a limit that was absent stays absent."""
        mine, theirs = dict(self), dict(more)
        return Budget(**{key: None if limit is None else limit + (theirs[key] or 0) for key, limit in mine.items()})


class Guards(Frozen):
    """How far a *model* may run away; function workers are bound only by a budget.

    Attributes:
        batons: in one tree. children: of one breakdown. depth: a fuse, not a design.
    """

    batons: int = Field(1_000, ge=1)
    children: int = Field(64, ge=1)
    depth: int = Field(64, ge=1)


class Baton(Frozen):
    """One task, completely described: any worker can take it.

    Times are milliseconds since 1970, UTC. `tools` is a whitelist: None means all the tree may use, `[]` none.
    `resources` are Ray's for its run (`num_cpus`, `num_gpus`, custom ones); `isolate: true` gives it a process of its own.
    """

    id: str
    root_id: str
    parent_id: str | None = None
    children: list[str] = []
    depth: int = 0
    goal: str
    context: dict[str, Any] = {}
    tools: list[str] | None = None
    prompt: str | None = None
    constraints: Constraints = Constraints()
    worker: str = AGENT
    model: str | None = None
    result_type: dict[str, Any] | None = None
    resources: dict[str, Any] = {}
    status: Status = Status.PENDING
    result: Any = None
    partial: bool = False
    error: str | None = None
    error_kind: ErrorKind | None = None
    attempt: int = 0
    losses: int = 0
    generation: int = 0
    rounds: int = 0
    usage: dict[str, float] = {}
    held: bool = False
    not_before: int | None = None
    deadline: int | None = None
    created_at: int = 0
    updated_at: int = 0
    channel: str | None = None
    notify: Notify = "off"

    @property
    def passive(self) -> bool:
        """Whether it waits for somebody outside instead of a worker process."""
        return self.worker in PASSIVE_WORKERS


class ChildSpec(Frozen):
    """A task that is to become a baton: checked, plain, ready for the wire. `Child` is how people write one."""

    goal: str
    context: dict[str, Any] = {}
    tools: list[str] | None = None
    prompt: str | None = None
    constraints: Constraints = Constraints()
    worker: str | None = None
    model: str | None = None
    result_type: dict[str, Any] | None = None
    resources: dict[str, Any] = {}
    held: bool = False
    not_before: int | None = Field(None, ge=0, lt=LATEST_TIME)
    deadline: int | None = Field(None, ge=0, lt=LATEST_TIME)

    @field_validator("goal", "prompt", "model")
    @classmethod
    def _text_can_be_stored(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is None:
            return None
        if not text.strip():
            raise ValueError("is blank; say what is to be done" if info.field_name == "goal" else "is blank; leave it out instead")
        return checked_text(text, str(info.field_name))

    @field_validator("context", "result_type", mode="before")
    @classmethod
    def _value_is_json(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(f"must be a JSON object, not {type(value).__name__}")
        return checked(dict(value) if isinstance(value, Mapping) else value, str(info.field_name))

    @field_validator("worker")
    @classmethod
    def _worker_is_a_reference(cls, worker: str | None) -> str | None:
        if worker is not None and not _WORKER.fullmatch(worker):
            raise ValueError(f"{worker!r} is no worker; give 'agent', 'human', 'external', 'module:function' or a function")
        return worker

    @field_validator("resources")
    @classmethod
    def _resources_are_amounts(cls, resources: dict[str, Any]) -> dict[str, Any]:
        for name, amount in resources.items():
            if name in _RAY_NAMES:
                raise ValueError(f"{name} is Ray's own name for it; write {_RAY_NAMES[name]}")
            if name == "isolate":
                if not isinstance(amount, bool):
                    raise ValueError(f"isolate is true or false, not {amount!r}")
            elif isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < 1e9:
                raise ValueError(f"{name} must be a number that is not negative, not {amount!r}")
            elif (amount > 1 and amount != int(amount)) or round(amount, 4) != amount:
                raise ValueError(f"{name} must be whole above 1, and have at most four decimals, not {amount!r}")
        return resources


@dataclass(frozen=True, slots=True)
class Child:
    """One task of a breakdown, as a worker writes it; `submit` takes the same fields.

    A worker, a model or tools that are not named are the parent's. `worker` and `tools` take functions, which travel
    by value. The fields of `Constraints` stand here by their own names; None leaves one at its default.

    Attributes:
        goal: what to do; not blank.
        context: any JSON object.
        hold: create it without starting it.
        not_before, deadline: milliseconds since 1970, UTC.
    """

    goal: str
    context: Mapping[str, Any] | None = None
    _: KW_ONLY
    tools: Sequence[str | Callable[..., Any]] | None = None
    prompt: str | None = None
    worker: str | Callable[..., Any] | None = None
    model: str | None = None
    max_rounds: int | None = None
    timeout_hint: float | None = None
    breakdown: BreakdownPolicy | None = None
    on_child_failure: OnChildFailure | None = None
    max_retries: int | None = None
    retry_on: Sequence[str] | None = None
    resources: Mapping[str, Any] | None = None
    result_type: Mapping[str, Any] | None = None
    hold: bool = False
    not_before: int | None = None
    deadline: int | None = None

    def spec(self, reference: Callable[[Callable[..., Any]], str]) -> ChildSpec:
        """The plain form. `reference` turns a function into the text that names it.

        Raises:
            InvalidInput: names the field that cannot be used.
        """
        given = {name: value for name, value in ((each, getattr(self, each)) for each in _SPEC_FIELDS) if value is not None}
        bounds = {name: value for name, value in ((each, getattr(self, each)) for each in Constraints.model_fields) if value is not None}
        if bounds:
            given["constraints"] = bounds
        if self.worker is not None:
            given["worker"] = _named(self.worker, "worker", reference)
        if self.tools is not None:
            given["tools"] = [_named(tool, "tools", reference) for tool in self.tools]
        if self.hold:
            given["held"] = True
        try:
            return ChildSpec.model_validate(given)
        except ValidationError as error:
            raise first_fault(error) from None


_SPEC_FIELDS = ("goal", "context", "prompt", "model", "resources", "result_type", "not_before", "deadline")


def _named(work: str | Callable[..., Any], field: str, reference: Callable[[Callable[..., Any]], str]) -> str:
    if isinstance(work, str):
        return work
    if not callable(work):
        raise InvalidInput(field, f"{work!r} is neither a name nor something that can be called")
    return reference(work)


def first_fault(error: ValidationError) -> InvalidInput:
    """The first of pydantic's findings, as one line of ours."""
    fault = error.errors()[0]
    path = ".".join(str(part) for part in fault["loc"] if part != "constraints")
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return cause
    given = "" if fault["type"] == "value_error" else f", not {str(fault['input'])[:80]!r}"
    return InvalidInput(path, f"{cause or fault['msg'][:1].lower() + fault['msg'][1:]}{given}")


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What became of one child, as its parent sees it when resumed; in spawn order."""

    id: str
    goal: str
    status: Status
    result: Any
    error: str | None
    error_kind: ErrorKind | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The task is done. `partial` says that rounds or budget ran out before all of it was."""

    value: Any = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The task cannot be done. A retryable failure is tried again while `max_retries` lasts, after `after` seconds at least."""

    error: str
    kind: ErrorKind = ErrorKind.ERROR
    retryable: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Spawned:
    """The task is broken down; it is resumed with the children's results. `state` is handed to the run that resumes it."""

    children: Sequence[Child]
    state: Any = None


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The window closed; any worker goes on from `state`, or from the last checkpoint if it is None."""

    state: Any = None


Outcome = Completed | Failed | Spawned | HandedOver

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_FROM_RFC4648 = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _CROCKFORD.encode())


def root_id(now: int, randomness: bytes) -> str:
    """`bt_` and a ULID in lower case: 10 characters of `now` (milliseconds), 16 of ten random bytes."""
    stamp = "".join(_CROCKFORD[(now >> shift) & 31] for shift in range(45, -1, -5))
    return f"bt_{stamp}{_base32(randomness)}"


def child_id(parent_id: str, generation: int, breakdown: int, index: int) -> str:
    """The id of one child: its root's 10 time characters, then 16 from SHA-256, so that a repeated run cannot spawn twice."""
    digest = hashlib.sha256(f"{parent_id}/{generation}/{breakdown}/{index}".encode()).digest()
    return parent_id[:13] + _base32(digest[:10])


def _base32(data: bytes) -> str:
    return b32encode(data).translate(_FROM_RFC4648).decode()
