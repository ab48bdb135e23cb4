"""JSON text to typed values, and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from ._errors import InvalidInput


class RawJson(str):
    """A whole input or output as JSON text, for a handler that does not read the text, or that
    has a parser of its own: the SDK passes the text on unchanged."""


def encode(value: Any) -> str:
    """The value as JSON text. Dataclasses become objects, enums their values, and dates, ``UUID``
    and ``Decimal`` text; any other value without a JSON form, such as ``NaN`` or one with more than
    :data:`DEPTH_MAX` levels, is a ``ValueError``."""
    if isinstance(value, RawJson):
        return well_formed(value)
    _check_depth(value)
    try:
        text = _dumps(value, ensure_ascii=False)
        # A lone surrogate has no UTF-8, but JSON has an escape for it.
        return text if well_formed(text) == text else _dumps(value, ensure_ascii=True)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


DEPTH_MAX = 1000
"""Most levels of lists and dicts in an output. The encoder of the sandbox's Python recurses, and
deeper values would end the handler by a trap."""

_CONTAINERS = frozenset((list, dict, tuple))


def _check_depth(value: Any) -> None:
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(DEPTH_MAX):
        if not level:
            return
        level = [
            part
            for container in level
            for part in (container.values() if type(container) is dict else container)
            if type(part) in _CONTAINERS
        ]
    if level:
        raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep, or contains itself")


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
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "parse_obj"):
        return value.dict()
    if hasattr(type(value), "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in value.__attrs_attrs__}
    raise TypeError(f"a {type(value).__name__} is not JSON")


def decode(value: Any, hint: Any, path: str = "") -> Any:
    """Reads what ``json.loads`` returned as ``hint``: a dataclass, a ``TypedDict``, a
    ``NamedTuple``, a class of ``attrs`` or pydantic, ``list``, ``tuple``, ``dict``, ``Literal``, an
    enum, a union, ``datetime``, ``date``, ``time``, ``UUID``, ``Decimal``, or one of JSON's own
    types. Unknown fields are ignored.

    Raises :class:`InvalidInput` with the path to the mistake: ``items[1].count: expected int, got
    str``.
    """
    hint = _plain_hint(hint)
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
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
    if isinstance(kind, type) and (read := _reader(kind)):
        return read(value, kind, path)
    if kind in (list, Sequence, set, frozenset):
        items = _expect(value, list, path)
        hint = args[0] if args else Any
        decoded = [decode(item, hint, f"{path}[{i}]") for i, item in enumerate(items)]
        return decoded if kind in (list, Sequence) else kind(decoded)
    if kind is tuple:
        return _decode_tuple(_expect(value, list, path), args, path)
    if kind in (dict, Mapping):
        items = _expect(value, dict, path)
        key_hint, hint = args or (Any, Any)
        return {
            _decode_key(key, key_hint, path): decode(item, hint, _field(path, key))
            for key, item in items.items()
        }
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _wrong(path, "the integer is too large for float") from None
    if kind in (str, int, float, bool):
        return _expect(value, kind, path)
    if hint is None or hint is type(None):
        return _expect(value, type(None), path)
    raise _unreadable(hint)


def _names_read(kind: Any, read: Callable[..., Any], hints: Mapping[str, Any]) -> Iterable[str]:
    """The fields of a class that come from the input. Its class variables do not, nor what its own
    code computes."""
    if read is _decode_typed_dict or read is _decode_named_tuple:
        return [*(kind.__annotations__ if read is _decode_typed_dict else kind._fields)]
    if read is _decode_attrs:
        return [field.name for field in kind.__attrs_attrs__ if field.init]
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    # A parameter that is no field is never given, so that it needs a default.
    missing = dataclasses.MISSING
    parameters = [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]
    fields = kind.__dataclass_fields__
    return names + [
        name
        for name in parameters
        if fields[name].default is missing and fields[name].default_factory is missing
    ]


def _unreadable(hint: Any) -> TypeError:
    return TypeError(
        f"{_name(hint)} cannot be read from JSON: annotate a dataclass, a TypedDict, datetime, UUID, "
        "Decimal, or a plain type"
    )


def check(hint: Any) -> None:
    """Raises the ``TypeError`` that :func:`decode` has for every value of this hint, so that the
    build finds it."""
    _check(hint, set())


def _check(hint: Any, seen: set[int]) -> None:
    hint = _plain_hint(hint)
    if id(hint) in seen:
        return
    seen.add(id(hint))
    origin, args = get_origin(hint), get_args(hint)
    kind: Any = origin or hint
    parts: Iterable[Any] = ()
    if hint in (Any, object, RawJson, None, type(None)) or origin is Literal:
        return
    if origin in (Union, types.UnionType, tuple):
        parts = [arg for arg in args if arg is not Ellipsis]
    elif kind in (dict, Mapping):
        key_hint, *parts = args or (Any,)
        _decode_key(None, key_hint, "")
    elif kind in (list, Sequence, set, frozenset):
        parts = args
    elif isinstance(kind, type) and (read := _reader(kind)):
        if read in (_decode_dataclass, _decode_typed_dict, _decode_named_tuple, _decode_attrs):
            hints = get_type_hints(kind)
            parts = [hints.get(name, Any) for name in _names_read(kind, read, hints)]
    elif kind not in (str, int, float, bool, tuple):
        raise _unreadable(hint)
    for part in parts:
        try:
            _check(part, seen)
        except TypeError as error:
            inside = f"{kind.__name__}: " if isinstance(kind, type) and kind not in _GENERIC else ""
            raise TypeError(f"{inside}{error}") from None


_GENERIC = (list, tuple, dict, set, frozenset, Union, types.UnionType)


def _plain_hint(hint: Any) -> Any:
    """The hint without ``Annotated``, ``Required``, ``NotRequired``, ``ReadOnly`` and ``NewType``."""
    while True:
        if hasattr(hint, "__metadata__"):
            hint = hint.__origin__
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif getattr(get_origin(hint), "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            hint = get_args(hint)[0]
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _reader(kind: type) -> Callable[[Any, Any, str], Any] | None:
    """The function that reads values of a class."""
    if hasattr(kind, "model_validate") or hasattr(kind, "parse_obj"):
        return _decode_model
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass
    if is_typeddict(kind):
        return _decode_typed_dict
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _decode_named_tuple
    if hasattr(kind, "__attrs_attrs__"):
        return _decode_attrs
    if issubclass(kind, enum.Enum):
        return _decode_enum
    return _TEXTS.get(kind)


def _decode_enum(value: Any, kind: Any, path: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        allowed = " or ".join(repr(member.value) for member in kind)
        raise _wrong(path, f"expected {allowed}, got {value!r}") from None


def _decode_model(value: Any, kind: Any, path: str) -> Any:
    """A class with a validation of its own, such as one of pydantic."""
    try:
        return (getattr(kind, "model_validate", None) or kind.parse_obj)(value)
    except ValueError as error:
        if callable(errors := getattr(error, "errors", None)):
            first = errors()[0]
            for part in first["loc"]:
                path = f"{path}[{part}]" if isinstance(part, int) else _field(path, str(part))
            raise _wrong(path, str(first["msg"])) from error
        raise _wrong(path, str(error)) from error


def _text_of(parse: Callable[[str], Any], example: str) -> Callable[[Any, Any, str], Any]:
    def read(value: Any, kind: Any, path: str) -> Any:
        text = _expect(value, str, path)
        try:
            return parse(text)
        except ValueError:
            what = f"expected a {kind.__name__} such as {example!r}, got {text[:100]!r}"
            raise _wrong(path, what) from None

    return read


def _decode_decimal(value: Any, kind: Any, path: str) -> Any:
    if type(value) not in (str, int, float):
        raise _wrong(path, f"expected Decimal, got {_name(type(value))}")
    try:
        number = decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        raise _wrong(path, f"expected a Decimal such as '1.50', got {value[:100]!r}") from None
    if not number.is_finite():
        raise _wrong(path, f"expected a finite Decimal, got {value!r}")
    return number


_TEXTS: dict[type, Callable[[Any, Any, str], Any]] = {
    datetime.datetime: _text_of(datetime.datetime.fromisoformat, "2026-01-31T12:00:00Z"),
    datetime.date: _text_of(datetime.date.fromisoformat, "2026-01-31"),
    datetime.time: _text_of(datetime.time.fromisoformat, "12:00:00"),
    uuid.UUID: _text_of(uuid.UUID, "12345678-1234-5678-1234-567812345678"),
    decimal.Decimal: _decode_decimal,
}


def _decode_key(key: Any, hint: Any, path: str) -> Any:
    """A key of a JSON object, which is text; without a key, checks the hint alone."""
    hint = _plain_hint(hint)
    if hint in (str, Any, object):
        return key
    if hint is int:
        if key is not None and not (
            key.removeprefix("-").isascii() and key.removeprefix("-").isdigit()
        ):
            raise _wrong(path, f"expected int as a key, got {key!r}")
        try:
            return key if key is None else int(key)
        except ValueError:
            most = sys.get_int_max_str_digits()
            raise _wrong(path, f"a key has more than {most} digits") from None
    kind: Any = hint if isinstance(hint, type) else None
    if get_origin(hint) is Literal or (kind and (kind in _TEXTS or issubclass(kind, enum.Enum))):
        return key if key is None else decode(key, hint, _field(path, key))
    raise TypeError(f"keys of JSON objects are text, which cannot be read as {_name(hint)}")


def _decode_dataclass(value: Any, kind: Any, path: str) -> Any:
    fields = [field for field in dataclasses.fields(kind) if field.init]
    missing = dataclasses.MISSING
    needed = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    return _decode_fields(value, kind, path, {field.name: field.name for field in fields}, needed)


def _decode_attrs(value: Any, kind: Any, path: str) -> Any:
    fields = [field for field in kind.__attrs_attrs__ if field.init]
    needed = [field.name for field in fields if type(field.default).__name__ == "_Nothing"]
    return _decode_fields(value, kind, path, {field.name: field.alias for field in fields}, needed)


def _decode_typed_dict(value: Any, kind: Any, path: str) -> Any:
    names = {name: name for name in kind.__annotations__}
    return _decode_fields(value, kind, path, names, kind.__required_keys__)


def _decode_named_tuple(value: Any, kind: Any, path: str) -> Any:
    if type(value) is list:
        hints = get_type_hints(kind)
        least = len(kind._fields) - len(kind._field_defaults)
        if not least <= len(value) <= len(kind._fields):
            raise _wrong(path, f"expected {len(kind._fields)} items, got {len(value)}")
        value = dict(zip(kind._fields, value, strict=False))
        decoded = {
            name: decode(v, hints.get(name, Any), _field(path, name)) for name, v in value.items()
        }
        return kind(**decoded)
    needed = [name for name in kind._fields if name not in kind._field_defaults]
    return _decode_fields(value, kind, path, {name: name for name in kind._fields}, needed)


def _decode_fields(
    value: Any, kind: Any, path: str, names: Mapping[str, str], needed: Iterable[str]
) -> Any:
    """A class with fields; ``names`` has the parameter of each."""
    given = _expect(value, dict, path)
    hints = get_type_hints(kind)
    fields = {}
    for name, parameter in names.items():
        if name in given:
            fields[parameter] = decode(given[name], hints.get(name, Any), _field(path, name))
        elif name in needed:
            raise _wrong(path, f"missing field `{name}`")
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
    if type(value) is int and any(_plain_hint(option) is int for option in options):
        # A `float` before `int` would round integers beyond 2**53.
        options = [option for option in options if _plain_hint(option) is not float]
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
