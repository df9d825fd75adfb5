"""One operation of the interface: path, method, parameters, body, result and error codes."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from api.schema.envelope import JSON

Method = Literal["GET", "POST", "PATCH", "DELETE"]

_ANYWHERE: Final = (1003, 1006, 1500, 1502)
"""1003 and 1502 too: a body that the operation ignores is read, up to a limit and a deadline."""
_WITH_TOKEN: Final = (1100, 1101, 1501, 1503)
_WITH_BODY: Final = (1000, 1001, 1002, 1401)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. Its handler has its `name`. `body` is None for an operation that ignores a body."""

    name: str
    method: Method
    path: str
    summary: str
    text: str = ""
    query: type[msgspec.Struct] | None = None
    """The query parameters, None for an operation that ignores a query."""
    body: Any = None
    result: Any
    own_codes: tuple[int, ...] = ()
    body_example: Any = None
    result_example: Any
    is_evaluation: bool = False
    """Whether the body goes to the detector undecoded."""

    is_batch: bool = False
    media_types: tuple[bytes, ...] = (JSON,)
    """The media types of the body; the first is the default."""

    takes_key: bool = False
    """Whether it takes an Idempotency-Key."""

    says_more: bool = False
    """Whether it needs no token, but answers more to a caller with one."""

    is_addition: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it needs no token."""
        return not self.path.startswith("/api/")

    @property
    def codes(self) -> tuple[int, ...]:
        """Every code that `errors` of this operation can have."""
        found = {*_ANYWHERE, *self.own_codes}
        if not self.is_open:
            found.update(_WITH_TOKEN)
        if self.body is not None:
            found.update(_WITH_BODY)
        if "{detectorId}" in self.path:
            found.add(1200)
        return tuple(sorted(found))
