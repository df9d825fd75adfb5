"""What is asked of a detector, and what comes back, as bytes between the front end and the actor."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from engine.evaluation.wire.events import Answer, BatchForm

EVALUATE: Final = "evaluate"
EVALUATE_BATCH: Final = "evaluate_batch"
EVALUATE_MSGPACK: Final = "evaluate_msgpack"
EVALUATE_LINES: Final = "evaluate_lines"
RULES: Final = "rules"
RULE: Final = "rule"
ADD_RULE: Final = "add_rule"
CHANGE_RULE: Final = "change_rule"
REMOVE_RULE: Final = "remove_rule"

BATCH_FORMS: Final[dict[str, BatchForm]] = {EVALUATE_BATCH: "json", EVALUATE_MSGPACK: "msgpack"}
"""What the payloads of the kinds that evaluate batches are written in."""

READS: Final = frozenset({RULES, RULE})
"""These leave the detector as it is."""

RULE_CHANGES: Final = frozenset({ADD_RULE, CHANGE_RULE, REMOVE_RULE})


BATCH_KINDS: Final = {form: kind for kind, form in BATCH_FORMS.items()}
"""The kind that evaluates a batch in a form."""


class Operation(NamedTuple):
    """One thing asked of a detector: a request's body as it came, or a small struct below as JSON."""

    kind: str
    payload: bytes
    key: str = ""
    """The caller's idempotency key, of an evaluation that has one."""


class NamedRule(msgspec.Struct, forbid_unknown_fields=True):
    """Of `rule` and `remove_rule`."""

    rule_id: str


class AddRule(msgspec.Struct, forbid_unknown_fields=True):
    """Of `add_rule`. The condition is text, in the language or JSON."""

    name: str
    condition: str
    notify: bool = False


class ChangeRule(msgspec.Struct, forbid_unknown_fields=True):
    """Of `change_rule`. What is None stays as it is."""

    rule_id: str
    name: str | None = None
    condition: str | None = None
    enabled: bool | None = None
    notify: bool | None = None


def evaluate(body: bytes, key: str = "") -> Operation:
    """Evaluate the event in a request's body."""
    return Operation(EVALUATE, body, key)


def evaluate_batch(body: bytes, key: str = "", form: BatchForm = "json") -> Operation:
    """Evaluate the events in a request's body, in order."""
    return Operation(BATCH_KINDS[form], body, key)


def evaluate_lines(lines: bytes) -> Operation:
    """Evaluate the events in a few lines of a stream, in order; the result is as many lines."""
    return Operation(EVALUATE_LINES, lines)


def rules() -> Operation:
    """Give all rules: `{"rules": [...]}`."""
    return Operation(RULES, b"")


def rule(rule_id: str) -> Operation:
    """Give one rule."""
    return Operation(RULE, msgspec.json.encode(NamedRule(rule_id)))


def add_rule(name: str, condition: str, *, notify: bool = False) -> Operation:
    """Add a rule: `{"id": ...}`."""
    return Operation(ADD_RULE, msgspec.json.encode(AddRule(name, condition, notify)))


def change_rule(
    rule_id: str,
    *,
    name: str | None = None,
    condition: str | None = None,
    enabled: bool | None = None,
    notify: bool | None = None,
) -> Operation:
    """Change a rule and give it whole."""
    change = ChangeRule(rule_id, name=name, condition=condition, enabled=enabled, notify=notify)
    return Operation(CHANGE_RULE, msgspec.json.encode(change))


def remove_rule(rule_id: str) -> Operation:
    """Remove a rule: `{"id": ...}`."""
    return Operation(REMOVE_RULE, msgspec.json.encode(NamedRule(rule_id)))


class Crash(msgspec.Struct, frozen=True):
    """An operation broke the engine. `reference` is what its caller is told, `detail` what the log says."""

    reference: str
    detail: str


class Reply(msgspec.Struct, frozen=True):
    """What became of a batch: the answers of its first operations, in order.

    There are fewer answers than operations after a crash, which was the next operation's, or where the
    answers are as large as they may be together. What comes behind was not begun.
    """

    answers: list[Answer]
    crash: Crash | None = None
    journal_bytes: int = 0
    """How much the journal holds that no snapshot has."""
    unsaved: bool = False
    """Whether there is anything that neither of them has."""
    unsynced: bool = False
    """Whether the journal holds anything that may not be on the disk."""
    no_room: str | None = None
    """Why what must be kept was refused; empty where it was not, None where there was no such thing."""
    missing: str | None = None
    """The file of the journal that somebody has removed or replaced, so that it must be saved at once."""


class _Batch(msgspec.Struct, array_like=True):
    operations: list[Operation]


_encoder: Final = msgspec.msgpack.Encoder()
_batch_decoder: Final = msgspec.msgpack.Decoder(_Batch)
_reply_decoder: Final = msgspec.msgpack.Decoder(Reply)


def encode_batch(batch: Sequence[Operation]) -> bytes:
    """Give a batch as the bytes that travel to an actor."""
    return _encoder.encode(_Batch(list(batch)))


def decode_batch(data: bytes | bytearray) -> list[Operation]:
    """Give back what `encode_batch` took."""
    return _batch_decoder.decode(data).operations


def encode_reply(reply: Reply) -> bytes:
    """Give a reply as the bytes that travel from an actor."""
    return _encoder.encode(reply)


def decode_reply(data: bytes | bytearray) -> Reply:
    """Give back what `encode_reply` took."""
    return _reply_decoder.decode(data)
