"""Calls of an actor's methods and their results, as bytes between the broker and the actor."""

from typing import Any, Final

import msgspec

from engine.runtime.detector.actor import Activated

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
