"""The messages about tokens, detectors, relations, and who changed them."""

from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.language.condition import Scalar
from engine.runtime.contract.tokens import TOKEN_DETECTORS_MAX, Scope

T = TypeVar("T")

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern="^[\t\n -~\u00a0-\U0010ffff]*$",
        description="1 to 255 characters, none of them a control character other than tab and newline.",
        extra={"expected": "1 to 255 characters without control characters other than tab and newline"},
    ),
]
PAGE_MAX: Final = 1000
"""Entries in one page of a list."""
YesOrNo = Annotated[Literal["true", "false"], Meta(extra={"expected": "`true` or `false`"})]
PageSize = Annotated[int, Meta(ge=1, le=PAGE_MAX, extra={"expected": f"a whole number from 1 to {PAGE_MAX}"})]


def given(value: T | UnsetType) -> T | None:
    """Return the value of an optional member, None where it is absent."""
    return None if isinstance(value, UnsetType) else value


class Identified(Struct):
    """The id of what was created, deleted or revoked."""

    id: str


class Token(Struct):
    """A new token. `token` is the secret and is shown only here; `hint` is its last four characters."""

    id: str
    token: str
    hint: str


_Scope = Annotated[
    str,
    Meta(
        pattern="^(evaluate|read|write|admin)$",
        extra={"expected": "`evaluate`, `read`, `write` or `admin`"},
        extra_json_schema={"enum": ["evaluate", "read", "write", "admin"]},
    ),
]
DetectorId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", extra={"expected": "the id of a detector"})]


class NewToken(Struct, forbid_unknown_fields=True):
    """The body that creates a token with a name. What is left out has no bound."""

    name: Name
    scopes: list[_Scope] | UnsetType = UNSET
    """What it may do: `evaluate` events; `read`, which dry runs and explanations belong to; `write`: change
    detectors, rules and relations; `admin`: manage tokens and the cluster."""
    detectors: Annotated[list[DetectorId], Meta(max_length=TOKEN_DETECTORS_MAX)] | UnsetType = UNSET
    """The ids of the detectors that it is for; those that it creates are added. It sees no others."""
    expires_ms: (
        Annotated[int, Meta(ge=0, le=8_640_000_000_000_000, extra={"expected": "milliseconds since 1970"})]
        | UnsetType
    ) = UNSET
    """When it expires, in milliseconds since 1970."""
    events_per_s: (
        Annotated[float, Meta(gt=0, le=1_000_000_000, extra={"expected": "a number above 0, up to 1e9"})]
        | UnsetType
    ) = UNSET
    """How many events it may evaluate a second; past that it gets 1401."""


class Bounds(Struct):
    """What a token may do; null is no bound."""

    scopes: list[Scope] | None
    detectors: list[str] | None
    """The ids of the detectors that it is for, as far as they exist."""
    expires_ms: int | None
    events_per_s: float | None


class OwnToken(Bounds):
    """The token of the request. A token from the settings has no id."""

    id: str | None
    name: str


class ListedToken(Bounds):
    """A token as lists show it. `used_ms` is when it was last used, to about a minute; null if not known."""

    id: str
    hint: str
    name: str
    created_ms: int | None
    used_ms: int | None


class Tokens(Struct):
    """The tokens, in order of creation."""

    tokens: list[ListedToken]


class NewDetector(Struct, forbid_unknown_fields=True):
    """The body that creates a detector."""

    name: Name


class Detector(Struct):
    """A detector as lists show it."""

    id: str
    name: str


class DetectorsQuery(Struct):
    """The page of a list of detectors. Without either parameter, the list is whole."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of detectors; 1000 if only `after` is given."""
    after: DetectorId | UnsetType = UNSET
    """Only detectors created after this one, the last of the previous page."""


Tuple = Annotated[
    list[Scalar] | str | int | float | bool,
    Meta(description="A tuple: an array of strings, numbers and booleans. A bare value is a tuple of one."),
]


class NewRelation(Struct, forbid_unknown_fields=True):
    """The body that replaces a relation. All tuples have the same length."""

    tuples: list[Tuple]


class RelationChange(Struct, forbid_unknown_fields=True):
    """The body that changes a relation: first `remove`, then `add`."""

    add: list[Tuple] | UnsetType = UNSET
    remove: list[Tuple] | UnsetType = UNSET


class Relation(Struct):
    """A relation without its tuples: how many there are, their length, and when it was changed last."""

    name: str
    tuples: int
    arity: int | None
    """The length of its tuples; null if it has none."""
    changed_ms: int


class Relations(Struct):
    """The relations of a detector, by name."""

    relations: list[Relation]


class RelationPage(Struct):
    """A page of the tuples of a relation."""

    tuples: list[list[Scalar]]
    next: int | None
    """What to send as `after` for the next page; null at the end."""


class NamedRelation(Struct):
    """The name of what was deleted."""

    name: str


_Types = Annotated[
    str,
    Meta(
        pattern="^(string|number|boolean)(,(string|number|boolean))*$",
        extra={"expected": "`string`, `number` or `boolean` for each column, with commas between them"},
    ),
]


class RelationQuery(Struct):
    """How CSV is read."""

    header: Annotated[Literal["true", "false"], Meta(extra={"expected": "`true` or `false`"})] = "false"
    """Whether the first line of CSV names the columns."""
    types: _Types | UnsetType = UNSET
    """The types of the columns of CSV, all strings by default, as in `string,number`."""


class TuplesQuery(Struct):
    """The page of a relation."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of tuples, 1000 by default."""
    after: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, extra={"expected": "the `next` of a page"})] | UnsetType
    ) = UNSET
    """The `next` of the page before."""


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
