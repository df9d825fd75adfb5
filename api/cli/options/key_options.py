"""Options that give values to names, among them that which chooses slices of a rule by its keys."""

import json
from collections.abc import Callable
from typing import Any

import click


def named_values(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    given: tuple[str, ...],
) -> dict[str, Any]:
    """Read values of the form NAME=VALUE; a value that is JSON is read as JSON, otherwise as text."""
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
    callback=named_values,
    help="With --rule: a key and its value, such as user=ada; once for each key. A value that is JSON is "
    'read as JSON, so write the string "7" as \'"7"\'.',
)
