"""Typed input, as a table: the values that are read, and the messages for the others."""

import enum
import unittest
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
)
from uuid import UUID

from gristmill import InvalidInput
from gristmill._values import DEPTH_MAX, check, decode, encode


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: "int" = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class Sack(TypedDict):
    grain: str
    weight: NotRequired[Decimal]


class Pair(NamedTuple):
    left: int
    right: int = 0


class Model:
    """A class with a validation of its own, as pydantic's are."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def parse_obj(cls, value: Any) -> "Model":
        if not isinstance(value, dict) or "name" not in value:
            raise ValueError("name is missing")
        return cls(value["name"])

    def dict(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass
class Node:
    children: list["Node"]


@dataclass
class Blob:
    data: bytes


@dataclass
class Stamped:
    """Fields that the input does not have, of types that JSON does not have."""

    kinds: ClassVar[frozenset[bytes]] = frozenset()
    name: str
    digest: bytes = field(default=b"", init=False)
    seed: InitVar[bytes] = b""


@dataclass
class Seeded:
    seed: InitVar[int]


Grams = NewType("Grams", int)
ID = "12345678-1234-5678-1234-567812345678"


class Decode(unittest.TestCase):
    def test_what_fits_is_read(self) -> None:
        for value, hint, expected in [
            (1, int, 1),
            (1, float, 1.0),
            (2**80, int, 2**80),
            ({"a": [1]}, Any, {"a": [1]}),
            ({"x": 1}, Point, Point(1)),
            ([{"x": 1, "y": 2}], list[Point], [Point(1, 2)]),
            ({"k": {"x": 1}}, dict[str, Point], {"k": Point(1)}),
            ([1, "a"], tuple[int, str], (1, "a")),
            ([1, 2], tuple[int, ...], (1, 2)),
            (None, Optional[int], None),
            ("a", Union[int, str], "a"),
            ("a", int | str | None, "a"),
            ("red", Color, Color.RED),
            ("on", Literal["on", "off"], "on"),
            ([1], list, [1]),
            ({"grain": "rye"}, Sack, {"grain": "rye"}),
            ({"grain": "rye", "weight": 1.5}, Sack, {"grain": "rye", "weight": Decimal("1.5")}),
            ({"left": 1}, Pair, Pair(1)),
            ([1, 2], Pair, Pair(1, 2)),
            ("2026-01-31T12:00:00Z", datetime, datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ("2026-01-31", date, date(2026, 1, 31)),
            (ID, UUID, UUID(ID)),
            ("0.1", Decimal, Decimal("0.1")),
            (2, Decimal, Decimal(2)),
            ({"1": "a"}, dict[int, str], {1: "a"}),
            ({"red": 1}, dict[Color, int], {Color.RED: 1}),
            (1, Annotated[int, "some"], 1),
            (1, Grams, 1),
            (2**53 + 1, float | int, 2**53 + 1),
            (2**53 + 1, float | Grams | None, 2**53 + 1),
            (1, float | str, 1.0),
            (1.5, int | float, 1.5),
            ("2026-01-31", date | str, date(2026, 1, 31)),
            ({"name": "a"}, Stamped, Stamped("a")),
        ]:
            with self.subTest(value=value, hint=hint):
                read = decode(value, hint)
                self.assertEqual((read, type(read)), (expected, type(expected)))

    def test_what_does_not_is_told_with_its_path(self) -> None:
        for value, hint, message in [
            ("x", int, "expected int, got str"),
            (True, int, "expected int, got bool"),
            (1.5, int, "expected int, got float"),
            (None, str, "expected str, got None"),
            ({}, Point, "missing field `x`"),
            ({"x": -1}, Point, "x is negative"),
            ([{"x": 1}, {}], list[Point], "[1]: missing field `x`"),
            ({"a": {"x": "1"}}, dict[str, Point], "a.x: expected int, got str"),
            ([1], tuple[int, str], "expected 2 items, got 1"),
            ([], Union[int, str], "expected int or str, got list"),
            ("x", Optional[int], "expected int, got str"),
            ("blue", Color, "expected 'red', got 'blue'"),
            (1, Literal[True, "a"], "expected True or 'a', got 1"),
            ({}, Sack, "missing field `grain`"),
            (
                {"grain": "rye", "weight": "x"},
                Sack,
                "weight: expected a Decimal such as '1.50', got 'x'",
            ),
            ("NaN", Decimal, "expected a finite Decimal, got 'NaN'"),
            ([], Pair, "expected 2 items, got 0"),
            ({"left": "x"}, Pair, "left: expected int, got str"),
            (5, datetime, "expected str, got int"),
            ("soon", date, "expected a date such as '2026-01-31', got 'soon'"),
            ("x", UUID, f"expected a UUID such as '{ID}', got 'x'"),
            ({"a": 1}, dict[int, int], "expected int as a key, got 'a'"),
            ({"7" * 4301: 1}, dict[int, int], "a key has more than 4300 digits"),
            (10**400, float, "the integer is too large for float"),
            ([{"a": 10**400}], list[dict[str, float]], "[0].a: the integer is too large for float"),
            (10**400, float | str, "expected float or str, got int"),
            ({}, Model, "name is missing"),
        ]:
            with self.subTest(value=value, hint=hint):
                with self.assertRaises(InvalidInput) as caught:
                    decode(value, hint)
                self.assertEqual(caught.exception.message, message)

    def test_a_class_with_its_own_validation_is_asked(self) -> None:
        self.assertEqual(decode({"name": "a"}, Model).name, "a")
        self.assertEqual(encode(Model("a")), '{"name":"a"}')

    def test_hints_are_checked_without_a_value(self) -> None:
        hints = [Node, Sack, Pair, Model, dict[str, Optional[Point]], Any, None, Color, Stamped]
        for hint in hints:
            check(hint)
        for hint, message in [
            (Blob, "Blob: bytes cannot be read from JSON"),
            (list[Union[int, Blob]], "Blob: bytes cannot be read from JSON"),
            (dict[float, int], "keys of JSON objects are text, which cannot be read as float"),
            (Seeded, "Seeded: .*InitVar.* cannot be read from JSON"),
            (complex, "complex cannot be read from JSON"),
        ]:
            with self.subTest(hint=hint):
                with self.assertRaisesRegex(TypeError, message):
                    check(hint)

    def test_a_type_that_json_cannot_be_is_the_authors_mistake(self) -> None:
        with self.assertRaisesRegex(TypeError, "bytes cannot be read from JSON"):
            decode("x", bytes)


class Encode(unittest.TestCase):
    def test_a_lone_surrogate_is_escaped(self) -> None:
        self.assertEqual(encode(["é", "\udc00"]), r'["\u00e9","\udc00"]')
        self.assertEqual(encode("é😀"), '"é😀"')

    def test_values_of_the_language_become_plain(self) -> None:
        self.assertEqual(
            encode({"p": Point(1), "c": Color.RED, "é": {1}}),
            '{"p":{"x":1,"y":0},"c":"red","é":[1]}',
        )

    def test_dates_and_numbers_become_text(self) -> None:
        values = [datetime(2026, 1, 31, tzinfo=UTC), date(2026, 1, 31), UUID(ID), Decimal("1.50")]
        self.assertEqual(
            encode(values), f'["2026-01-31T00:00:00+00:00","2026-01-31","{ID}","1.50"]'
        )

    def test_the_depth_is_bounded(self) -> None:
        value: Any = 1
        for _ in range(DEPTH_MAX):
            value = [value]
        # The encoder of this Python may have a lower bound of its own.
        for deep in ([value], {"a": value}):
            with self.assertRaisesRegex(ValueError, "nested more than 1000 levels"):
                encode(deep)
        loop: list[Any] = []
        loop.append(loop)
        with self.assertRaisesRegex(ValueError, "contains itself"):
            encode(loop)


if __name__ == "__main__":
    unittest.main()
