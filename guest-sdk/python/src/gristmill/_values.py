"""JSON text to typed values, and back."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ._errors import InvalidInput


class RawJson(str):
    """A whole input or output as JSON text, for a handler that does not read the text, or that
    has a parser of its own: the SDK passes the text on unchanged."""


def encode(value: Any) -> str:
    """The value as JSON text. Dataclasses become objects and enums their values; any other
    value without a JSON form, such as ``NaN``, is a ``ValueError``."""
    if isinstance(value, RawJson):
        return well_formed(value)
    try:
        text = _dumps(value, ensure_ascii=False)
        # A lone surrogate has no UTF-8, but JSON has an escape for it.
        return text if well_formed(text) == text else _dumps(value, ensure_ascii=True)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _dumps(value: Any, ensure_ascii: bool) -> str:
    return json.dumps(
        value,
        allow_nan=False,
        ensure_ascii=ensure_ascii,
        separators=(",", ":"),
        default=_plain,
    )


def well_formed(text: str) -> str:
    """The text without lone surrogates, which cannot be passed to the host."""
    return text.encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


def decode(value: Any, hint: Any, path: str = "") -> Any:
    """Reads what ``json.loads`` returned as ``hint``: a dataclass, ``list``, ``tuple``, ``dict``,
    ``Literal``, an enum, a union, or one of JSON's own types. Unknown fields are ignored.

    Raises :class:`InvalidInput` with the path to the mistake: ``items[1].count: expected int, got
    str``.
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Union or origin is types.UnionType:
        return _decode_union(value, args, path)
    if origin is Literal:
        # `True == 1` in Python, but they are different values in JSON.
        if not any(value == arg and type(value) is type(arg) for arg in args):
            allowed = " or ".join(map(repr, args))
            raise _wrong(path, f"expected {allowed}, got {value!r}")
        return value
    kind: Any = origin or hint
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _decode_dataclass(_expect(value, dict, path), kind, path)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            allowed = " or ".join(repr(member.value) for member in kind)
            raise _wrong(path, f"expected {allowed}, got {value!r}") from None
    if kind in (list, Sequence, set, frozenset):
        items = _expect(value, list, path)
        hint = args[0] if args else Any
        decoded = [decode(item, hint, f"{path}[{i}]") for i, item in enumerate(items)]
        return decoded if kind in (list, Sequence) else kind(decoded)
    if kind is tuple:
        return _decode_tuple(_expect(value, list, path), args, path)
    if kind in (dict, Mapping):
        items = _expect(value, dict, path)
        hint = args[1] if args else Any
        return {key: decode(item, hint, _field(path, key)) for key, item in items.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind in (str, int, float, bool):
        return _expect(value, kind, path)
    if hint is None or hint is type(None):
        return _expect(value, type(None), path)
    raise TypeError(f"{_name(hint)} cannot be read from JSON: annotate a dataclass or a plain type")


def _decode_dataclass(value: dict[str, Any], kind: type, path: str) -> Any:
    hints = get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        if field.name in value:
            fields[field.name] = decode(
                value[field.name], hints[field.name], _field(path, field.name)
            )
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _wrong(path, f"missing field `{field.name}`")
    try:
        return kind(**fields)
    except ValueError as error:  # of a `__post_init__` that checks
        raise _wrong(path, str(error)) from error


def _decode_tuple(items: list[Any], args: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    if not args or args[-1] is Ellipsis:
        args = (args[0] if args else Any,) * len(items)
    if len(items) != len(args):
        raise _wrong(path, f"expected {len(args)} items, got {len(items)}")
    return tuple(
        decode(item, arg, f"{path}[{i}]")
        for i, (item, arg) in enumerate(zip(items, args, strict=True))
    )


def _decode_union(value: Any, args: tuple[Any, ...], path: str) -> Any:
    if value is None and type(None) in args:
        return None
    options = [arg for arg in args if arg is not type(None)]
    if len(options) == 1:  # `T | None`: the mistake is inside
        return decode(value, options[0], path)
    for option in options:
        try:
            return decode(value, option, path)
        except InvalidInput:
            continue
    raise _wrong(path, f"expected {' or '.join(map(_name, args))}, got {_name(type(value))}")


def _expect(value: Any, kind: type, path: str) -> Any:
    if type(value) is not kind:  # exact, since a bool is an int
        raise _wrong(path, f"expected {_name(kind)}, got {_name(type(value))}")
    return value


def _wrong(path: str, what: str) -> InvalidInput:
    return InvalidInput(f"{path}: {what}" if path else what)


def _field(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _name(hint: Any) -> str:
    if hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) else str(hint)
