"""Exceptions that travel from a worker as bytes: by type name and text, so that nothing is unpickled."""

import builtins
import traceback
from typing import Final

import msgspec

from engine.runtime.contract.errors import Superseded
from engine.runtime.contract.log_records import bounded
from snapshots import errors
from snapshots.errors import StorageError


class ActorFailed(Exception):
    """The worker raised an exception of an unknown type; its name begins the text."""


class _RemoteTraceback(Exception):
    """The worker's traceback: the cause of the exception raised here."""


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    type_name: str
    text: str
    trace: str


def _of_one_text(module: object, family: type[Exception]) -> dict[str, type[Exception]]:
    """Return a module's exceptions of a family that are constructed from one text, by name."""
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
    if len(error.args) == 1 and isinstance(error.args[0], str):
        # `str` of a KeyError adds quotes; its argument does not.
        text = error.args[0]
    known = _TYPES.get(type_name)
    if isinstance(error, StorageError) and known is None:
        type_name = StorageError.__name__
    elif known is not type(error):
        type_name, text = ActorFailed.__name__, f"{type_name}: {text}"
    trace = bounded("".join(traceback.format_exception(error)))
    # A lone surrogate, as in a file's name, cannot be encoded.
    text, trace = (each.encode(errors="backslashreplace").decode() for each in (text, trace))
    return _encoder.encode(_Failure(type_name, text, trace))


def decode_failure(data: bytes | bytearray) -> Exception:
    """Return an exception like the encoded one, to be raised."""
    failure = _decoder.decode(data)
    error = _TYPES.get(failure.type_name, ActorFailed)(failure.text)
    error.__cause__ = _RemoteTraceback(f"\n{failure.trace}")
    return error
