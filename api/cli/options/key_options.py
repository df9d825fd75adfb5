"""The option that chooses slices of a rule: a value for each of its keys."""

import json
from collections.abc import Callable
from typing import Any

import click


def _parsed(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001
    key: dict[str, Any] = {}
    for each in given:
        name, is_, text = each.partition("=")
        if not is_ or not name:
            raise click.BadParameter(f"expected NAME=VALUE, got `{each}`")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        key[name] = value if isinstance(value, str | int | float) else text
    return key


key_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--key",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parsed,
    help="With --rule: a key and its value, such as user=ada; once for each key. A value that is JSON is "
    'read as JSON, so write the string "7" as \'"7"\'.',
)
