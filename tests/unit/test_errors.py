"""Every exception survives `pickle`, says one line, and stands in the tree that the module draws."""

import importlib
import inspect
import pickle
import pkgutil
import re

import pytest

import baton_actors
from baton_actors import errors
from baton_actors.errors import BatonError, BatonFailed, InvalidInput, NotFound, WaitTimeout

_SAMPLES = {"seconds": 2.5, "after": 3.0, "epoch": 4, "usage": {"tokens_in": 1.0}}


def subclasses(of: type[BatonError]) -> list[type[BatonError]]:
    below = [cls for cls in of.__subclasses__() if cls.__module__.startswith("baton_actors")]
    return [of, *(found for cls in below for found in subclasses(cls))]


# Exceptions may be defined anywhere; what is not imported is no subclass yet.
for module in pkgutil.walk_packages(baton_actors.__path__, "baton_actors."):
    if "__main__" not in module.name and "migrations." not in module.name:
        importlib.import_module(module.name)


def sample(cls: type[BatonError]) -> BatonError:
    if cls.__init__ is Exception.__init__:
        return cls("some text")
    parameters = inspect.signature(cls).parameters.values()
    return cls(*(_SAMPLES.get(each.name, f"some {each.name}") for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD))


@pytest.mark.parametrize("cls", subclasses(BatonError))
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_each_exception_survives_pickle(cls: type[BatonError], protocol: int) -> None:
    error = sample(cls)
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is cls
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("cls", [cls for cls in subclasses(BatonError) if cls is not BatonError])
def test_each_exception_tells_its_arguments_in_one_line(cls: type[BatonError]) -> None:
    error = sample(cls)
    assert str(error).count("\n") == 0
    assert any(str(argument) in str(error) for argument in error.args)


@pytest.mark.parametrize("cls", [cls for cls in subclasses(BatonError) if cls.__module__ == errors.__name__])
def test_the_docstring_draws_each_exception_below_its_parent(cls: type[BatonError]) -> None:
    drawn = re.findall(r"^([ │├└─]*)(\w+)", str(errors.__doc__), re.MULTILINE)
    above: dict[int, str] = {}
    for indent, name in drawn:
        if name == cls.__name__:
            assert cls is BatonError or above[len(indent) - 4] == cls.__bases__[0].__name__
            return
        above[len(indent)] = name
    pytest.fail(f"{cls.__name__} is not drawn")


def test_exceptions_are_the_builtin_ones_too_where_people_expect_that() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(NotFound, LookupError)
    assert issubclass(WaitTimeout, TimeoutError)


def test_a_failed_baton_says_how_to_start_it_again() -> None:
    assert (
        str(BatonFailed("bt_1", "no such file", "error")) == "baton bt_1 failed (error): no such file; 'baton retry bt_1' starts it again"
    )
