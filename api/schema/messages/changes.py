"""The messages about the changes log."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schema.messages.catalogue import PageSize


class ChangesQuery(Struct):
    """The page of the log."""

    after: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, extra={"expected": "the number of a change"})] | UnsetType
    ) = UNSET
    """Only changes after this number: the `next` of the previous page."""
    limit: PageSize | UnsetType = UNSET
    """The maximum number of changes, 1000 by default."""


class TokenOfChange(Struct):
    """The token that made a change; a token from the settings has no id."""

    id: str | None
    name: str


class LoggedChange(Struct):
    """A change that has happened."""

    seq: int
    """Its number, which grows from change to change."""
    time_ms: int
    token: TokenOfChange | None
    """Whose token made it; null for what the service did at its start, or `rule-detector token new`."""
    request: str | None
    """The `X-Request-ID` of the request."""
    kind: Literal["token", "detector", "rule", "relation", "node"]
    action: str
    """`create`, `change` or `delete`; for a rule also `promote`, for a detector `move`, for a node `drain`
    and `undrain`."""
    id: str
    """The id of what was changed; of a relation, its name."""
    name: str
    detectorId: str | UnsetType = UNSET
    """The detector of a rule or a relation."""
    old: Any = UNSET
    """What it was: all of what was deleted, the members that differ of what was changed."""
    new: Any = UNSET
    """What it is now, likewise."""


class Changes(Struct):
    """A page of the log, oldest first."""

    changes: list[LoggedChange]
    next: int
    """The number after which to go on."""
