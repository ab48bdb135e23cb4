"""The schemas of annotations, as a table, and their section of a component."""

import enum
import json
import math
import unittest
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict
from uuid import UUID

import gristmill
from gristmill import _schema
from gristmill._values import RawJson


class Color(enum.Enum):
    RED = "red"
    ONE = 1


class Lenient(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient":
        return cls.A


class Tolerant(str, enum.Enum):
    """The base of enums that accept further values."""

    @classmethod
    def _missing_(cls, value: object) -> "Tolerant":
        return next(iter(cls))


class Inherited(Tolerant):
    A = "a"


class Endless(enum.Enum):
    ALL = math.inf
    NONE = 0.0


@dataclass
class Bounds:
    least: float = -math.inf
    most: float = math.nan
    mark: str = "\ud800"
    step: float = 0.5


@dataclass
class Tree:
    name: str
    size: int = 4
    children: "list[Tree]" = field(default_factory=list)
    note: str | None = None


class Sack(TypedDict):
    grain: str
    weight: NotRequired[Decimal]


class Pair(NamedTuple):
    left: int
    right: float = 0.5


class Model:
    """As pydantic's classes, with a validation of its own."""

    @classmethod
    def model_validate(cls, value: object) -> "Model":
        return cls()


DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

TEXT = {"type": "string"}

INTEGER = {"type": "integer"}


class Schemas(unittest.TestCase):
    def test_plain_types(self) -> None:
        for hint, expected in [
            (Any, None),
            (object, None),
            (RawJson, None),
            (Model, None),
            (Lenient, None),
            (Inherited, None),
            (Endless, None),
            (Literal[math.inf], None),
            (Literal[b"x"], None),
            (int | Any, None),
            (str, TEXT),
            (Annotated[int, "count"], INTEGER),
            (float, {"type": "number"}),
            (None, {"type": "null"}),
            (Optional[bool], {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
            (Literal["a", 1], {"enum": ["a", 1]}),
            (Color, {"enum": ["red", 1]}),
            (list, {"type": "array"}),
            (set[str], {"type": "array", "items": TEXT}),
            (tuple[int, ...], {"type": "array", "items": INTEGER}),
            (
                tuple[int, str],
                {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [INTEGER, TEXT]},
            ),
            (dict, {"type": "object"}),
            (
                Mapping[int, str],
                {
                    "type": "object",
                    "additionalProperties": TEXT,
                    "propertyNames": {"pattern": "^-?[0-9]+$"},
                },
            ),
            (date, {"type": "string", "format": "date"}),
            (UUID, {"type": "string", "format": "uuid"}),
            (Decimal, {"type": ["string", "number"]}),
        ]:
            schema = _schema.of(hint)
            self.assertEqual(schema, expected and {**DRAFT, **expected}, hint)

    def test_classes_with_fields_may_contain_themselves(self) -> None:
        tree = {
            "type": "object",
            "title": "Tree",
            "properties": {
                "name": TEXT,
                "size": {"type": "integer", "default": 4},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                "note": {"anyOf": [TEXT, {"type": "null"}]},
            },
            "required": ["name"],
        }
        expected = {**DRAFT, "$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}
        self.assertEqual(_schema.of(Tree), expected)
        sack = _schema.of(Sack)
        assert sack
        self.assertEqual(sack["$defs"]["Sack"]["required"], ["grain"])
        pair = _schema.of(Pair)
        assert pair
        as_object, as_list = pair["$defs"]["Pair"]["anyOf"]
        self.assertEqual(as_object["required"], ["left"])
        self.assertEqual((as_list["minItems"], as_list["maxItems"]), (1, 2))

    def test_a_default_that_is_not_json_is_left_out(self) -> None:
        schema = _schema.of(Bounds)
        assert schema
        properties = schema["$defs"]["Bounds"]["properties"]
        defaults = {name: part["default"] for name, part in properties.items() if "default" in part}
        self.assertEqual(defaults, {"step": 0.5})
        section = _schema.section(schema)
        text = section[section.index(b"{") :].decode()
        self.assertEqual(json.loads(text, parse_constant=self.fail), schema)

    def test_only_a_decorated_handler_has_one(self) -> None:
        @gristmill.handler
        def typed(ctx: gristmill.Context, input: Sack) -> None: ...

        def plain(job: dict[str, Any]) -> None: ...

        of = gristmill._handler.of  # type: ignore[attr-defined]
        self.assertIsNotNone(_schema.of(of(typed).input()))
        self.assertIsNone(_schema.of(of(plain).input()))

    def test_a_section_has_the_length_of_its_content(self) -> None:
        section = _schema.section({"title": "x" * 200})
        self.assertEqual(section[0], 0)
        length = section[1] & 0x7F | section[2] << 7
        self.assertEqual(length, len(section) - 3)
        self.assertTrue(section[3:].startswith(b"\x16gristmill:input-schema{"))
        with self.assertRaisesRegex(ValueError, "at most 65536"):
            _schema.section({"title": "x" * (64 << 10)})


if __name__ == "__main__":
    unittest.main()
