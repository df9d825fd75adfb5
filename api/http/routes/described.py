"""Blueprints that describe the operations of their routes, for the OpenAPI document and the checks."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Final

from quart import Blueprint

from api.schema.operation import Operation

View = Callable[..., Awaitable[Any]]

_DESCRIBED: Final[dict[View, Operation]] = {}


def describe(**fields: Any) -> Callable[[View], View]:
    """Describe the operation of a view by fields of Operation. Its name is that of the view."""

    def keep(view: View) -> View:
        _DESCRIBED[view] = Operation(name=view.__name__, route="", **fields)
        return view

    return keep


class Operations(Blueprint):
    """A blueprint each of whose routes is an operation."""

    def __init__(self, name: str) -> None:
        super().__init__(name, __name__)
        self.operations: list[Operation] = []

    def add_url_rule(
        self, rule: str, endpoint: Any = None, view_func: Any = None, *_: Any, **options: Any
    ) -> None:
        """Add a route and its operation. The blueprint's decorators call this."""
        super().add_url_rule(rule, endpoint, view_func, **options)
        [method] = options["methods"]
        path = rule.replace("<", "{").replace(">", "}")
        self.operations.append(dataclasses.replace(_DESCRIBED[view_func], route=f"{method} {path}"))
