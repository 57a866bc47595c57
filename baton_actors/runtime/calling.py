"""Calling an owner so that one whose process has stopped holds up nobody.

Ray does not notice that a process was stopped (SIGSTOP, a frozen container, a debugger): a call to it waits for ever. So while an
answer is due, the process is asked now and then whether it is alive, in the group of the long polls, which is free when the
owner's own loop is busy. One that says nothing is ended through Ray, on whatever node it is, and with it the lock that it may hold
in a SQLite file; its tree goes to another owner. Should it live on, behind a cut network, its epoch keeps it from writing.
"""

import asyncio
import logging
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from baton_actors.errors import BatonError

log = logging.getLogger(__name__)

#: Seconds without an answer, after which it is asked whether the process is alive; each time longer, up to the second.
PULSE_SECONDS = 2.0
LONGEST_PULSE_SECONDS = 10.0
#: How long it may take to say so: so many looks of so many seconds. Not one long look: if this process was stopped itself,
#: together with all others perhaps, a single limit would be over at once.
LOOKS = 4
LOOK_SECONDS = 2.0
#: Seconds in which a process may start, before it is asked.
START_SECONDS = 30.0
#: Seconds between two calls of an actor that is being restarted.
RESTART_PAUSE_SECONDS = 0.2


async def called(handle: ActorHandle[Any], method: str, *arguments: Any, pulse: float = PULSE_SECONDS) -> Any:
    """What an owner answers, however long it takes while its process is alive; `pulse`: seconds before it is first asked whether it is.

    Raises:
        RayActorError: it died, or had stopped and was ended for that.
        BatonError: what the method raised.
    """
    answer = _future(getattr(handle, method).remote(*arguments))
    while not answer.done():
        await asyncio.wait({answer}, timeout=pulse)
        if not answer.done() and not await _is_alive(handle, answer):
            log.warning("an owner's process has stopped, it is ended: %s", handle)
            await asyncio.to_thread(ray.kill, handle)  # which fails the call
        pulse = min(2 * pulse, LONGEST_PULSE_SECONDS)
    try:
        return answer.result()
    except RayTaskError as error:
        raise cause_of(error) from None


async def patiently_called(handle: ActorHandle[Any], method: str, *arguments: Any, pulse: float = PULSE_SECONDS) -> Any:
    """As `called`, over restarts of the owner.

    Raises:
        RayActorError: Ray will not start it again.
    """
    while True:
        try:
            return await called(handle, method, *arguments, pulse=pulse)
        except ActorUnavailableError:
            await asyncio.sleep(RESTART_PAUSE_SECONDS)


def cause_of(error: RayTaskError) -> Exception:
    """What a method of an actor raised: an exception of ours as itself."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BatonError) else error


async def _is_alive(handle: ActorHandle[Any], answer: "asyncio.Future[Any]") -> bool:
    """Whether the process says so, or the answer came meanwhile; one that is being restarted has not stopped."""
    sign = _future(handle.alive.remote())
    for _ in range(LOOKS):
        await asyncio.wait({sign, answer}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if sign.done() or answer.done():
            break
    sign.add_done_callback(_seen)
    return sign.done() or answer.done()


def _future(reference: Any) -> "asyncio.Future[Any]":
    return asyncio.wrap_future(reference.future())


def _seen(sign: "asyncio.Future[Any]") -> None:
    if not sign.cancelled() and not isinstance(sign.exception(), RayActorError | None):
        log.error("an owner cannot be asked whether it is alive", exc_info=sign.exception())
