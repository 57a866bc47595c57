"""How an actor begins its background work by itself, after a restart too, when nobody may call it for a while."""

import threading
import time
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayError

#: Seconds between two tries: right after a restart an actor's own handle may still say that it is restarting.
RETRY_SECONDS = 0.05


def awaken_soon(actor: ActorHandle[Any]) -> None:
    """Call `actor.awaken` from a thread until it has been taken; for the actor's own `__init__`, where it cannot be awaited."""
    threading.Thread(target=_awaken, args=(actor,), name="awaken", daemon=True).start()


def _awaken(actor: ActorHandle[Any]) -> None:
    while True:
        try:
            actor.awaken.remote().future().result()  # not ray.get, which warns that it would block an async actor
        except ActorUnavailableError:
            time.sleep(RETRY_SECONDS)
        except RayError:
            return  # awaken handles its own faults; what comes here is the end of this process
        else:
            return
