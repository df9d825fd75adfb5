"""Keys and labels are written NAME=VALUE; a value that is a scalar in JSON is read so."""

from typing import Any

import click
import pytest

from api.cli.options.values import named_values

COMMAND = click.Command("state", params=[click.Option(["--key"])])


def read(*given: str) -> dict[str, Any]:
    return named_values(click.Context(COMMAND), COMMAND.params[0], given)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ada", "ada"),
        ("7", 7),
        ('"7"', "7"),
        ("1.5", 1.5),
        ("true", True),
        ("a=b", "a=b"),
        ("", ""),
        *((text, text) for text in ("null", "[1]", '{"a": 1}', "NaN", "-Infinity", "1e999", "[" * 100_000)),
    ],
)
def test_a_value_is_read_as_json_if_it_is_a_scalar(text: str, value: object) -> None:
    found = read(f"user={text}")["user"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("given", ["user", "=7"])
def test_a_value_needs_a_name(given: str) -> None:
    with pytest.raises(click.BadParameter, match="expected NAME=VALUE, got"):
        read("a=1", given)
