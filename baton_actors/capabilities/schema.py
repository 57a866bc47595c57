"""What a function tells of itself: its parameters as a JSON schema, its docstring as a description.

Hints become schemas through pydantic, docstrings are read by griffe. Nothing is called here but what turns text into values.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from baton_actors.errors import InvalidInput

#: Where a function keeps the types that its hints stood for, see `hold_hints`.
_HINTS = "__baton_hints__"
_STYLES = ("google", "numpy", "sphinx")


@dataclass(frozen=True, slots=True)
class Form:
    """How a function is called with a JSON object.

    Attributes:
        schema: of the object. model: validates it; its fields are named by their place, their aliases are the parameters.
        places: the parameters in the fields' order. by_position: those of them that cannot be named in a call.
        hidden: parameters that the caller of the tool fills in.
    """

    schema: dict[str, Any]
    model: type[BaseModel]
    places: tuple[inspect.Parameter, ...]
    hidden: tuple[str, ...]

    def bound(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the named values of a call, hidden ones not among them; what was not given is left to its default.

        Raises:
            ValidationError: JSON text that does not fit the schema. Validators of the user's own types may raise anything.
        """
        given = self.model.model_validate_json(arguments)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for number, parameter in enumerate(self.places):
            field = _field(number)
            # A default made by pydantic's Field is none that Python knows.
            is_given = field in given.model_fields_set or isinstance(parameter.default, FieldInfo)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(getattr(given, field) if is_given else parameter.default)
            elif is_given:
                named[parameter.name] = getattr(given, field)
        return positional, named


def form_of(function: Callable[..., Any], name: str, described: Mapping[str, str], hidden_type: type) -> Form:
    """The form of a function.

    Args:
        name: what to call the function in a message. described: texts for its parameters.
        hidden_type: a parameter with this hint is left out of the schema.

    Raises:
        InvalidInput: a parameter of which no JSON schema can be made, or that a model cannot fill in.
    """
    parameters = _parameters(function, name)
    hints = {parameter.name: _hint(function, parameter, name) for parameter in parameters}
    hidden = tuple(each.name for each in parameters if hints[each.name] in (hidden_type, hidden_type | None))
    places = tuple(each for each in parameters if each.name not in hidden)
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in hidden:
            raise InvalidInput("tools", f"{name!r}: parameter {parameter.name!r} is filled in by name; move it behind the '/'")
    try:
        model = _model(places, hints, described)
        schema = _schema(model)
    except Exception:  # user types have hooks of their own, which may raise anything
        raise _misfit(places, hints, name) from None
    return Form(schema, model, places, hidden)


def hold_hints(function: Callable[..., Any]) -> None:
    """Keep the types that textual hints stand for with the function itself.

    A function that travels by value takes along the globals that its code uses, and hints are not among those: under
    `from __future__ import annotations`, what they name would be unknown where it arrives. Those that cannot be found now stay text.
    """
    function = getattr(function, "__func__", function)
    held = {}
    with contextlib.suppress(TypeError, ValueError):  # something built in, without a signature
        for parameter in inspect.signature(function).parameters.values():
            if parameter.annotation is not parameter.empty:
                with contextlib.suppress(Exception):
                    held[parameter.name] = _evaluated(function, parameter)
    textual = any(isinstance(hint, str) for hint in getattr(function, "__annotations__", {}).values())
    if held and textual:
        setattr(function, _HINTS, held)


def described(docstring: str | None) -> tuple[str, dict[str, str]]:
    """What a docstring says of a function and of its parameters, whatever the style (Google's, NumPy's, Sphinx's).

    The first is the summary and the body, the sections on parameters, results, errors and examples left out.
    """
    import griffe

    text = inspect.cleandoc(docstring or "")
    quiet: Any = {style: {"warnings": False} for style in _STYLES}
    body: list[str] = []
    parameters: dict[str, str] = {}
    for section in griffe.parse_auto(griffe.Docstring(text), per_style_options=quiet):
        match section:
            case griffe.DocstringSectionText():
                body.append(section.value)
            case griffe.DocstringSectionAdmonition():  # "Formats:" and an indented list look like a section to a parser
                body.append(f"{section.title}:\n{inspect.cleandoc(section.value.description)}")
            case griffe.DocstringSectionParameters() | griffe.DocstringSectionOtherParameters():
                parameters |= {each.name.lstrip("*"): " ".join(each.description.split()) for each in section.value}
    return "\n\n".join(body).strip(), parameters


def expectation(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, for a message: `integer`, `one of "a", "b"`, `list of string`."""
    if "enum" in schema:
        return "one of " + ", ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(expectation(each) for each in schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {expectation(schema.get('items', {}))}"
    about = f" ({schema['format']})" if "format" in schema else ""
    return f"{schema.get('type', 'any value')}{about}"


# ---------------------------------------------------------------- parameters and their types


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidInput("tools", f"{name!r} has no signature that can be read; wrap it in a function with type hints") from None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(
                "tools", f"{name!r}: a model cannot know what to give for {parameter}; write its parameters out, or take a list or a dict"
            )
    return parameters


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, name: str) -> Any:
    if parameter.annotation is parameter.empty:
        return Any
    try:
        return _evaluated(function, parameter)
    except Exception as error:  # evaluating a hint is evaluating any expression
        raise InvalidInput(
            "tools",
            f"{name!r}: the type {parameter.annotation!r} of parameter {parameter.name!r} cannot be found "
            f"({type(error).__name__}: {error}); define or import it in the function's module",
        ) from None


def _evaluated(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type that a hint stands for; only this one is looked at, so an unknown name elsewhere (the result's) does no harm."""
    held = getattr(function, _HINTS, {})
    if parameter.name in held:
        return held[parameter.name]
    inner = inspect.unwrap(getattr(function, "__func__", function))
    one: Any = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = {**getattr(inner, "__globals__", {}), **dict(_enclosed(inner))}
    return get_type_hints(one, names, include_extras=True)[parameter.name]


def _enclosed(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The variables of the functions around it that it uses."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # not yet assigned
            yield name, cell.cell_contents


def _annotated(parameter: inspect.Parameter, hint: Any, description: str | None) -> tuple[Any, Any]:
    """The field of a parameter: its annotation and its default."""
    default = ... if parameter.default is parameter.empty else parameter.default
    if default is None:
        hint = _or_none(hint)
    if FieldInfo.from_annotation(hint).description or (isinstance(default, FieldInfo) and default.description):
        description = None  # said beside the hint, which is closer than the docstring
    # pydantic merges these from left to right and skips what is not given
    own = {"alias": parameter.name, "validation_alias": parameter.name} | ({"description": description} if description else {})
    return Annotated[hint, Field(**own)], default  # type: ignore[call-overload]  # names and types are fixed above


def _or_none(hint: Any) -> Any:
    """`x: int = None` is meant as `int | None`, and models like to send null for what they leave out."""
    if hint is Any:
        return hint
    if get_origin(hint) is Annotated:
        inner, *about = get_args(hint)
        return Annotated[_or_none(inner), *about]
    return hint | None


def _field(number: int) -> str:
    """The name of a field: not the parameter's own, which pydantic might keep for itself (`copy`, `schema`, `_x`)."""
    return f"parameter_{number}"


# ---------------------------------------------------------------- schemas


class _Quiet(GenerateJsonSchema):
    """Without warnings: a default that is no JSON is simply not told."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}


def _model(places: Sequence[inspect.Parameter], hints: Mapping[str, Any], described: Mapping[str, str]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        _field(number): _annotated(parameter, hints[parameter.name], described.get(parameter.name))
        for number, parameter in enumerate(places)
    }
    return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema: dict[str, Any] = _untitled(model.model_json_schema(schema_generator=_Quiet))
    schema.setdefault("properties", {})
    return schema


def _untitled(schema: Any) -> Any:
    """A schema without its titles, which only repeat the names; a property may well be called `title`."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs"):
            bare[key] = {name: _untitled(each) for name, each in value.items()}
        elif key in ("default", "const", "enum", "examples", "mapping"):
            bare[key] = value
        elif key != "title":
            bare[key] = _untitled(value)
    if "prefixItems" in bare:
        bare.setdefault("items", {})  # servers want it of every array, also of one whose places are all named
    return bare


def _misfit(places: Sequence[inspect.Parameter], hints: Mapping[str, Any], name: str) -> InvalidInput:
    """Which parameter it is that has no schema."""
    for parameter in places:
        try:
            _schema(_model([parameter], hints, {}))
        except Exception as error:
            why = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
            return InvalidInput(
                "tools",
                f"{name!r}: no JSON schema can be made of {_type_name(parameter.annotation)}, the type of parameter {parameter.name!r} "
                f"({why}); take text, numbers, lists, dicts, dataclasses or pydantic models",
            )
    return InvalidInput("tools", f"{name!r}: no JSON schema can be made of its parameters together; simplify their types")


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
