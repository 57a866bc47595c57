"""No model calls in tests, in this process and those that it starts."""

import os
from contextlib import ExitStack

from baton_actors.agent.forbidding import VARIABLE


def forbid_model_calls() -> ExitStack:
    """From now on a call to a model that is not on this machine fails with `ModelUnusable`, in worker processes too.

    For a whole test run, call it in `conftest.py`; as a context manager it holds inside the `with` block.
    """
    undo = ExitStack()
    undo.callback(_restore, os.environ.get(VARIABLE))
    os.environ[VARIABLE] = "1"
    return undo


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before
