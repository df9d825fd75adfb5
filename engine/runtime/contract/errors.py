"""The errors of the runtime.

Exceptions travel between processes as bytes: by type name and text, so that nothing is unpickled.
"""

import builtins
import traceback
from typing import Final

import msgspec

from engine.language.diagnostics import Entry, Refusal, quoted
from engine.runtime.contract.tokens import TOKEN_DETECTORS_MAX
from engine.runtime.process.log_records import bounded
from snapshots import errors
from snapshots.errors import StorageError

STARTING = 1501
OUTCOME_UNKNOWN = 1502
SHUTTING_DOWN = 1503
TOO_MANY_WAIT = 1401
INTERNAL = 1500
TOO_MANY = 1400
NO_SUCH_DETECTOR = 1200
NO_SUCH_TOKEN = 1202
NO_SUCH_NODE = 1204

_NAME_CHARS_SHOWN = 80


class DetectorUnavailable(Exception):
    """No answer is available now: 1401, 1501, 1502 or 1503, with the time to retry after if known."""

    def __init__(self, code: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class ActorDied(Exception):
    """A worker is dead or unreachable. Whether it executed the last call is unknown."""


class Superseded(ActorDied):
    """A worker has refused a command, because a later scheduler commands it.

    The refused scheduler treats the worker as lost, and learns on ending it that it was replaced.
    """


class MessageLost(ActorDied):
    """A call or its answer was lost on a working connection. Whether the call was executed is unknown."""


def no_such_detector(detector_id: str, hint: str = "") -> Refusal:
    """Return the refusal for a detector that does not exist."""
    return Refusal(Entry(NO_SUCH_DETECTOR, f"there is no detector `{detector_id}`{hint}"))


def no_such_name(name: str, count: int) -> Refusal:
    """Return the refusal for a name that no detector or several detectors have."""
    shown = quoted(name[:_NAME_CHARS_SHOWN])
    several = f"{count} detectors are named {shown}; give the id of one"
    return Refusal(Entry(NO_SUCH_DETECTOR, several if count else f"no detector is named {shown}"))


def too_many(what: str, most: int, owner: str = "") -> Refusal:
    """Return the refusal for a detector or token beyond the limit of the service or of its owner, a token."""
    message = f"the service has {most} {what}; limit {most}"
    if owner:
        own = TOKEN_DETECTORS_MAX
        message = f"the token already has {own} {what}, or the service has {most}; limits {own} and {most}"
    return Refusal(Entry(TOO_MANY, message))


def no_such_token(token_id: str) -> Refusal:
    """Return the refusal for a token that does not exist."""
    return Refusal(Entry(NO_SUCH_TOKEN, f"there is no token `{token_id}`"))


def no_such_node(node_id: str) -> Refusal:
    """Return the refusal for an unknown or dead node, or one that takes no detectors."""
    return Refusal(Entry(NO_SUCH_NODE, f"there is no living node `{node_id[:80]}` that takes detectors"))


def no_other_node() -> Refusal:
    """Return the refusal to move a detector if only its own node takes detectors."""
    return Refusal(Entry(NO_SUCH_NODE, "there is no other living node that takes detectors"))


def shutting_down() -> DetectorUnavailable:
    """Return the error for requests that cannot be served because the service is stopping."""
    return DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")


def outcome_unknown(why: str) -> DetectorUnavailable:
    """Return the error for an operation that may or may not have been executed."""
    return DetectorUnavailable(OUTCOME_UNKNOWN, f"{why}; whether the event was evaluated is not known")


class ActorFailed(Exception):
    """The worker raised an exception of a type unknown here; the text begins with its name."""


class _RemoteTraceback(Exception):
    """The worker's traceback: the cause of the exception raised here."""


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    type_name: str
    text: str
    trace: str = ""
    entries: tuple[Entry, ...] = ()
    """The entries of a Refusal."""
    code: int = 0
    """The code of a DetectorUnavailable."""
    retry_after_s: float | None = None


def _of_one_text(module: object, family: type[Exception]) -> dict[str, type[Exception]]:
    """Return a module's exceptions of a family that take one text as their argument, by name."""
    return {
        name: member
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, family) and _is_made_of_text(member)
    }


def _is_made_of_text(kind: type[Exception]) -> bool:
    try:
        return str(kind("a text")) in ("a text", "'a text'")
    except TypeError:
        return False


# Storage errors come last, so that they win if names collide.
_TYPES: Final = (
    _of_one_text(builtins, Exception) | {Superseded.__name__: Superseded} | _of_one_text(errors, StorageError)
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Failure)


def encode_failure(error: Exception) -> bytes:
    """Encode an exception."""
    type_name, text = type(error).__name__, str(error)
    if isinstance(error, Refusal):
        return _encoder.encode(_Failure(type_name, text, entries=error.entries))
    if isinstance(error, DetectorUnavailable):
        code, retry_s = error.code, error.retry_after_s
        return _encoder.encode(_Failure(type_name, text, code=code, retry_after_s=retry_s))
    if len(error.args) == 1 and isinstance(error.args[0], str):
        # `str` of a KeyError adds quotes; its argument does not.
        text = error.args[0]
    known = _TYPES.get(type_name)
    if isinstance(error, StorageError) and known is None:
        type_name = StorageError.__name__
    elif known is not type(error):
        type_name, text = ActorFailed.__name__, f"{type_name}: {text}"
    trace = bounded("".join(traceback.format_exception(error)))
    # A lone surrogate, as in a file name, cannot be encoded.
    text, trace = (each.encode(errors="backslashreplace").decode() for each in (text, trace))
    return _encoder.encode(_Failure(type_name, text, trace))


def decode_failure(data: bytes | bytearray) -> Exception:
    """Return an exception equivalent to the encoded one."""
    failure = _decoder.decode(data)
    if failure.entries:
        return Refusal(*failure.entries)
    if failure.code:
        return DetectorUnavailable(failure.code, failure.text, failure.retry_after_s)
    error = _TYPES.get(failure.type_name, ActorFailed)(failure.text)
    error.__cause__ = _RemoteTraceback(f"\n{failure.trace}")
    return error
