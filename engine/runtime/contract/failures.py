"""Exceptions that travel from an actor as bytes: by name, for nothing that comes is ever unpickled."""

import builtins
import traceback
from typing import Final

import msgspec

from snapshots import errors
from snapshots.errors import StorageError


class ActorFailed(Exception):
    """The actor raised an exception of a type that does not travel; its name begins the text."""


class _There(Exception):
    """The traceback in the actor: the cause of what is raised here."""


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    type_name: str
    text: str
    trace: str


def _of_one_text(module: object, family: type[Exception]) -> dict[str, type[Exception]]:
    """Give the family's members in a module that are made of one text."""
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


# Storage errors last: no name of theirs is to be taken by another.
_TYPES: Final = _of_one_text(builtins, Exception) | _of_one_text(errors, StorageError)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Failure)


def encode_failure(error: Exception) -> bytes:
    """Give an exception as the bytes that travel from an actor."""
    type_name, text = type(error).__name__, str(error)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        # As a KeyError is made, not as it is shown.
        text = error.args[0]
    known = _TYPES.get(type_name)
    if isinstance(error, StorageError) and known is None:
        type_name = StorageError.__name__
    elif known is not type(error):
        type_name, text = ActorFailed.__name__, f"{type_name}: {text}"
    trace = "".join(traceback.format_exception(error))
    # A lone surrogate, as in the name of a file, cannot be encoded.
    text, trace = (each.encode(errors="backslashreplace").decode() for each in (text, trace))
    return _encoder.encode(_Failure(type_name, text, trace))


def decode_failure(data: bytes | bytearray) -> Exception:
    """Give an exception like the one that `encode_failure` took, to be raised."""
    failure = _decoder.decode(data)
    error = _TYPES.get(failure.type_name, ActorFailed)(failure.text)
    error.__cause__ = _There(f"\n{failure.trace}")
    return error
