"""One operation of the interface: path, method, parameters, body, result and error codes."""

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

import msgspec

from api.schema.envelope import JSON
from api.schema.examples import ID
from api.schema.messages.catalogue import Identified
from engine.runtime.contract.tokens import Scope

ID_PATTERN: Final = "[0-9a-f]{32}"
"""The form of the ids of detectors and tokens."""
_OF_DETECTOR: Final = re.compile(f"/api/detectors/({ID_PATTERN})(?:/|$)".encode())

ANY: Final = "any"
NONE: Final = "none"
Needed = Scope | Literal["any", "none"]

_ANYWHERE: Final = (1003, 1006, 1500, 1502)
"""The codes of all operations. They include 1003 and 1502, because even an ignored body is read, up to a
limit and a deadline."""
_WITH_TOKEN: Final = (1100, 1101, 1501, 1503)
_WITH_BODY: Final = (1000, 1001, 1002, 1401)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. Its view has its `name`. `body` is None for an operation that ignores a body."""

    name: str
    route: str
    """Its method and its path, as in `GET /api/detectors`."""

    scope: Needed
    """The scope that the token needs, ANY if every token may do it, NONE if no token is needed."""
    dry_run_scope: Scope | None = None
    """The scope that it needs with `dry_run=true`, if that differs."""
    is_of_all: bool = False
    """Whether it concerns all detectors, so that tokens limited to some may not do it."""
    is_for_itself: bool = False
    """Whether a token may always do it to itself, if its id is the parameter `id` of the path."""

    summary: str
    text: str = ""
    query: type[msgspec.Struct] | None = None
    """The query parameters; None for an operation that ignores the query."""
    body: Any = None
    result: Any = Identified
    """The type of the result; by default the id of the created, deleted or revoked object."""

    own_codes: tuple[int, ...] = ()
    body_example: Any = None
    result_example: Any = field(default_factory=lambda: {"id": ID})
    media_types: tuple[bytes, ...] = (JSON,)
    """The media types of the body; the first is the default."""

    is_upload: bool = False
    """Whether the view itself reads the body, while it arrives."""

    takes_any_type: bool = False
    """Whether the Content-Type is ignored, and the body itself shows its format."""

    is_bare: bool = False
    """Whether a successful result has no envelope."""

    says_more: bool = False
    """Whether it needs no token, but gives callers with a token more information."""

    is_addition: bool = True

    @property
    def method(self) -> str:
        """GET, POST, PUT, PATCH or DELETE."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with its parameters in braces."""
        return self.route.partition(" ")[2]

    @property
    def is_evaluation(self) -> bool:
        """Whether the body goes to the detector undecoded, and the request may have an Idempotency-Key."""
        return "/evaluate" in self.route or self.route.endswith("/ingest")

    @property
    def is_batch(self) -> bool:
        """Whether the body has many events or rules."""
        return self.route.endswith(("/batch", "/ingest", "/logs")) or self.method == "PUT"

    @property
    def is_open(self) -> bool:
        """Whether it needs no token."""
        return self.scope == NONE

    def scope_of(self, query: bytes) -> Needed:
        """Return the scope that a request with a query needs."""
        if self.dry_run_scope is not None and asks_for(query, "dry_run"):
            return self.dry_run_scope
        return self.scope

    @property
    def codes(self) -> tuple[int, ...]:
        """All codes that `errors` of this operation may have."""
        found = {*_ANYWHERE, *self.own_codes}
        if not self.is_open:
            found.update(_WITH_TOKEN)
        if self.scope not in (ANY, NONE):
            found.add(1102)
        if self.body is not None:
            found.update(_WITH_BODY)
        if "{detectorId}" in self.path:
            found.add(1200)
        return tuple(sorted(found))


def detector_in(path: bytes) -> str | None:
    """Return the id of the detector that a path names; None if it names none."""
    found = _OF_DETECTOR.match(path)
    return found[1].decode("ascii") if found else None


def asks_for(query: bytes, name: str) -> bool:
    """Whether a parameter of a query is `true`."""
    return bool(query) and (name, "true") in parse_qsl(query.decode("latin-1"), keep_blank_values=True)
