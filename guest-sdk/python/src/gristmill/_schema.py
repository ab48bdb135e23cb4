"""The JSON Schema of an annotation, which the build puts into the component, so that the host checks the
inputs of new jobs. The schema accepts every value that :func:`gristmill._values.decode` accepts."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import types
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from . import _values

Schema = dict[str, Any]

SECTION = "gristmill:input-schema"
"""The custom section of a component with its schema."""

BYTES_MAX = 64 << 10
"""The largest schema that a host reads."""

_TEXTS: dict[Any, Schema] = {
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": ["string", "number"]},
}

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    tuple: {"type": "array"},
}


def of(hint: Any) -> Schema | None:
    """The schema of the annotation of an input; ``None`` if it accepts every value."""
    if _values._plain_hint(hint) is _values.RawJson:
        return None
    reader = _Reader()
    schema = reader.read(hint)
    if not schema:
        return None
    if reader.named:
        schema |= {"$defs": {name: part for name, part in reader.named.values()}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def section(schema: Schema) -> bytes:
    """The bytes to append to a component. Raises ``ValueError`` if the schema is too large."""
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    if len(text) > BYTES_MAX:
        raise ValueError(f"the schema of the input has {len(text)} bytes; at most {BYTES_MAX} are allowed")
    name = SECTION.encode()
    content = _leb128(len(name)) + name + text
    return b"\x00" + _leb128(len(content)) + content


def _leb128(number: int) -> bytes:
    """A length as WebAssembly writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


class _Reader:
    def __init__(self) -> None:
        self.named: dict[Any, tuple[str, Schema]] = {}
        """The classes with fields, by themselves: they may contain themselves."""

    def read(self, hint: Any) -> Schema:
        hint = _values._plain_hint(hint)
        origin, args = get_origin(hint), get_args(hint)
        if origin is Union or origin is types.UnionType:
            return _any_of([self.read(arg) for arg in args])
        if origin is Literal:
            return _one_of(args)
        kind: Any = origin or hint
        if isinstance(kind, type) and (read := _values._reader(kind)):
            return self.of_class(kind, read)
        if kind in (list, Sequence, set, frozenset):
            items = self.read(args[0]) if args else {}
            return {"type": "array"} | ({"items": items} if items else {})
        if kind is tuple and args and args[-1] is not Ellipsis:
            return self.fixed([(self.read(arg), True) for arg in args])
        if kind is tuple and args:
            return self.read(list[args[0]])  # type: ignore[valid-type]
        if kind in (dict, Mapping):
            return self.of_dict(*(args or (Any, Any)))
        return dict(_PLAIN.get(kind, {}))

    def fixed(self, items: Sequence[tuple[Schema, bool]]) -> Schema:
        needed = sum(is_needed for _, is_needed in items)
        schema = {"type": "array", "minItems": needed, "maxItems": len(items)}
        return schema | ({"prefixItems": [item for item, _ in items]} if items else {})

    def of_dict(self, key: Any, value: Any) -> Schema:
        schema: Schema = {"type": "object"}
        if values := self.read(value):
            schema["additionalProperties"] = values
        key = _values._plain_hint(key)
        if key is int:
            schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
        elif key not in (str, Any, object) and (names := self.read(key)):
            schema["propertyNames"] = names
        return schema

    def of_class(self, kind: Any, read: Callable[..., Any]) -> Schema:
        if kind in _TEXTS:
            return dict(_TEXTS[kind])
        if read is _values._decode_enum:
            return _of_enum(kind)
        if read not in _WITH_FIELDS:
            return {}  # a class with a validation of its own
        if kind not in self.named:
            taken = {name for name, _ in self.named.values()}
            name = kind.__name__
            while name in taken:
                name += "_"
            schema: Schema = {}
            self.named[kind] = (name, schema)
            schema |= self.with_fields(kind, read)
        return {"$ref": f"#/$defs/{self.named[kind][0]}"}

    def with_fields(self, kind: Any, read: Callable[..., Any]) -> Schema:
        hints = get_type_hints(kind)
        fields = {}
        needed = []
        for name, is_needed, default in _WITH_FIELDS[read](kind):
            fields[name] = self.read(hints.get(name, Any))
            if is_needed:
                needed.append(name)
            elif default is not None and _is_json(default):
                fields[name] = {**fields[name], "default": default}
        schema: Schema = {"type": "object", "title": kind.__name__, "properties": fields}
        if needed:
            schema["required"] = needed
        if read is _values._decode_named_tuple:
            items = [(fields[name], name in needed) for name in kind._fields]
            return _any_of([schema, self.fixed(items)])
        return schema


_Field = tuple[str, bool, Any]


def _of_dataclass(kind: Any) -> Iterable[_Field]:
    missing = dataclasses.MISSING
    for field in dataclasses.fields(kind):
        if field.init:
            is_needed = field.default is missing and field.default_factory is missing
            yield field.name, is_needed, field.default


def _of_typed_dict(kind: Any) -> Iterable[_Field]:
    for name in kind.__annotations__:
        yield name, name in kind.__required_keys__, None


def _of_named_tuple(kind: Any) -> Iterable[_Field]:
    for name in kind._fields:
        yield name, name not in kind._field_defaults, kind._field_defaults.get(name)


def _of_attrs(kind: Any) -> Iterable[_Field]:
    for field in kind.__attrs_attrs__:
        if field.init:
            yield field.name, type(field.default).__name__ == "_Nothing", field.default


_WITH_FIELDS: dict[Any, Callable[[Any], Iterable[_Field]]] = {
    _values._decode_dataclass: _of_dataclass,
    _values._decode_typed_dict: _of_typed_dict,
    _values._decode_named_tuple: _of_named_tuple,
    _values._decode_attrs: _of_attrs,
}


def _of_enum(kind: Any) -> Schema:
    # A `_missing_` may accept further values; it may come from a base class.
    is_own = getattr(kind._missing_, "__func__", None) is not _MISSING
    return {} if is_own else _one_of([member.value for member in kind])


_MISSING = enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def _one_of(values: Sequence[Any]) -> Schema:
    """The schema of these values alone; any value, if one of them cannot be in a schema."""
    return {"enum": list(values)} if all(map(_is_json, values)) else {}


def _is_json(value: Any) -> bool:
    """Whether a plain value can be in a schema: JSON has no infinity, and UTF-8 no lone surrogate."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is str:
        return _values.well_formed(value) == value
    return value is None or type(value) in (int, bool)


def _any_of(parts: list[Schema]) -> Schema:
    return {} if any(not part for part in parts) else {"anyOf": parts}
