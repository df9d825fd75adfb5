"""The messages about tokens, detectors, relations, and their changes."""

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
"""The maximum number of entries in one page of a list."""
YesOrNo = Annotated[Literal["true", "false"], Meta(extra={"expected": "`true` or `false`"})]
PageSize = Annotated[int, Meta(ge=1, le=PAGE_MAX, extra={"expected": f"a whole number from 1 to {PAGE_MAX}"})]


def given(value: T | UnsetType) -> T | None:
    """Return the value of an optional member; None if it is absent."""
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
    """The body that creates a token with a name. Absent members mean no bound."""

    name: Name
    scopes: list[_Scope] | UnsetType = UNSET
    """What it may do. `evaluate`: events; `read`: includes dry runs and explanations; `write`: change
    detectors, rules and relations; `admin`: manage tokens and the cluster."""
    detectors: Annotated[list[DetectorId], Meta(max_length=TOKEN_DETECTORS_MAX)] | UnsetType = UNSET
    """The ids of the detectors that it may use; those that it creates are added. It sees no others."""
    expires_ms: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=8_640_000_000_000_000,
                extra={"expected": "a whole number of milliseconds since 1970"},
            ),
        ]
        | UnsetType
    ) = UNSET
    """When it expires, in milliseconds since 1970."""
    events_per_s: (
        Annotated[float, Meta(gt=0, le=1_000_000_000, extra={"expected": "a number above 0, up to 1e9"})]
        | UnsetType
    ) = UNSET
    """How many events it may evaluate a second; beyond that it gets 1401."""


class Bounds(Struct):
    """What a token may do; null means no bound."""

    scopes: list[Scope] | None
    detectors: list[str] | None
    """The ids of the existing detectors that it may use."""
    expires_ms: int | None
    events_per_s: float | None


class OwnToken(Bounds):
    """The token of the request. A token from the settings has no id."""

    id: str | None
    name: str


class ListedToken(Bounds):
    """A token in a list. `used_ms` is when it was last used, to about a minute; null if unknown."""

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
    """A detector in a list."""

    id: str
    name: str


class DetectorsQuery(Struct):
    """The page of a list of detectors. Without either parameter, the whole list."""

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
    """A relation without its tuples: their number and length, and when it was last changed."""

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
    """The `after` of the next page; null at the end."""


class NamedRelation(Struct):
    """The name of the deleted relation."""

    name: str


_Types = Annotated[
    str,
    Meta(
        pattern="^(string|number|boolean)(,(string|number|boolean))*$",
        extra={"expected": "`string`, `number` or `boolean` for each column, with commas between them"},
    ),
]


class RelationQuery(Struct):
    """How to read CSV."""

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
    """The `next` of the previous page."""


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
    """A completed change."""

    seq: int
    """Its number, higher with each change."""
    time_ms: int
    token: TokenOfChange | None
    """The token that made it; null for the service's start and for `rule-detector token new`."""
    request: str | None
    """The `X-Request-ID` of the request."""
    kind: Literal["token", "detector", "rule", "relation", "node"]
    action: str
    """`create`, `change` or `delete`; for a rule also `promote`, for a detector `move`, for a node `drain`
    and `undrain`."""
    id: str
    """The id of the changed object; the name of a relation."""
    name: str
    detectorId: str | UnsetType = UNSET
    """The detector of a rule or a relation."""
    old: Any = UNSET
    """The old value: the whole deleted object, or the members that differ."""
    new: Any = UNSET
    """The new value, likewise."""


class Changes(Struct):
    """A page of the log, oldest first."""

    changes: list[LoggedChange]
    next: int
    """The number after which the next page begins."""
