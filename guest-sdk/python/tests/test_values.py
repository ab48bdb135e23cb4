"""Typed input, as a table: the values that are read, and the messages for the others."""

import enum
import unittest
from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from gristmill import InvalidInput
from gristmill._values import decode, encode


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: "int" = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


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
        ]:
            with self.subTest(value=value, hint=hint):
                self.assertEqual(decode(value, hint), expected)

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
        ]:
            with self.subTest(value=value, hint=hint):
                with self.assertRaises(InvalidInput) as caught:
                    decode(value, hint)
                self.assertEqual(caught.exception.message, message)

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


if __name__ == "__main__":
    unittest.main()
