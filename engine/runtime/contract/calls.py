"""Calls of an actor's methods and their results, as bytes between the broker and the actor."""

from typing import Any, Final

import msgspec


class Activated(msgspec.Struct, frozen=True):
    """A detector is awake. `damage` names what had to be set aside to wake it."""

    damage: tuple[str, ...] = ()
    records: int = 0
    """How many records of the journal were taken again."""
    diverged: str | None = None
    """Which of them other rules fire at now than when they were written, if there are any."""
    read_only: str | None = None
    """Why the detector can only be read, if that is so."""


class Health(msgspec.Struct, frozen=True):
    """What an actor says of itself, also while it is busy."""

    pid: int
    detector_id: str | None
    resident_bytes: int


RESULTS: Final[dict[str, Any]] = {
    "activate": Activated,
    "sync": None,
    "begin_saving": bool,
    "passivate": int,
    "discard": None,
}
"""The methods that can be called, and the type of what each gives."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of a method of the actor."""

    method: str
    arguments: list[str | int]


_encoder: Final = msgspec.msgpack.Encoder()
_call_decoder: Final = msgspec.msgpack.Decoder(Call)
_result_decoders: Final = {name: msgspec.msgpack.Decoder(kind) for name, kind in RESULTS.items()}


def encode_call(method: str, arguments: tuple[str | int, ...]) -> bytes:
    """Give a call as the bytes that travel to an actor."""
    return _encoder.encode(Call(method, list(arguments)))


def carry_out(actor: object, data: bytes | bytearray) -> bytes:
    """Call the method of an actor that `encode_call` named, and give its encoded result.

    Raises ValueError for any other method, and what the method raises.
    """
    call = _call_decoder.decode(data)
    if call.method not in RESULTS:
        raise ValueError(f"an actor has no method `{call.method}` to be called")
    return _encoder.encode(getattr(actor, call.method)(*call.arguments))


def decode_result(method: str, data: bytes | bytearray) -> Any:
    """Give the result that `carry_out` encoded."""
    return _result_decoders[method].decode(data)
