"""`module:function`: how a worker is named in text, and what it must look like."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from baton_actors.errors import InvalidInput


def resolve(reference: str) -> tuple[ModuleType, Callable[..., Any]]:
    """The module and the function that `module:function` names.

    Raises:
        InvalidInput: says which part of it there is not.
    """
    module_name, colon, name = reference.partition(":")
    if not colon:
        raise InvalidInput("worker", f"{reference!r} is no worker; give 'module:function', 'human', 'external' or a function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InvalidInput("worker", f"no module {module_name!r}, neither installed nor in {Path.cwd()}") from None
        raise InvalidInput("worker", f"importing {module_name!r} failed: {error}") from None
    except (Exception, SystemExit) as error:  # importing runs foreign code, which may raise anything
        raise InvalidInput("worker", f"importing {module_name!r} failed: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if function is None:
        raise InvalidInput("worker", f"module {module_name!r} has no {name!r}")
    if not callable(function):
        raise InvalidInput("worker", f"{reference!r} is {type(function).__name__}, not a function of (baton, ctx)")
    return module, function


def check_signature(function: Callable[..., Any], name: str) -> None:
    """See that a function can be called as a worker.

    Raises:
        InvalidInput: it does not take (baton, ctx).
    """
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidInput("worker", f"{name!r} must take two arguments, (baton, ctx)") from None
    except ValueError:  # builtins without a signature
        return
