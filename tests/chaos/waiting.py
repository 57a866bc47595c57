"""Waiting for what no event tells: the state of rows and of other processes."""

import threading
import time
from collections.abc import Callable

#: Seconds between two looks.
LOOK_SECONDS = 0.05


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether it came true in that time; looked at again and again."""
    end, never = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        never.wait(LOOK_SECONDS)
    return True
