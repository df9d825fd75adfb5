"""Calls of a worker's methods and their results, encoded as msgpack between broker and worker."""

from typing import Any, Final

import msgspec


class Activated(msgspec.Struct, frozen=True):
    """The result of an activation. `damage` names the damaged files that were set aside."""

    damage: tuple[str, ...] = ()
    records: int = 0
    """The number of journal records replayed."""
    diverged: str | None = None
    """The journal records at which other rules fire now than originally; None if there are none."""
    read_only: str | None = None
    """Why the detector is read-only; None if it is not."""


class Health(msgspec.Struct, frozen=True):
    """The state of a worker, available even while it is busy."""

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
"""The methods that can be called, and their result types."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of a worker's method."""

    method: str
    arguments: list[str | int]


_encoder: Final = msgspec.msgpack.Encoder()
_call_decoder: Final = msgspec.msgpack.Decoder(Call)
_result_decoders: Final = {name: msgspec.msgpack.Decoder(kind) for name, kind in RESULTS.items()}


def encode_call(method: str, arguments: tuple[str | int, ...]) -> bytes:
    """Encode a call."""
    return _encoder.encode(Call(method, list(arguments)))


def carry_out(actor: object, data: bytes | bytearray) -> bytes:
    """Call the method that `encode_call` named on a worker, and return its encoded result.

    Raises ValueError for any other method, and whatever the method raises.
    """
    call = _call_decoder.decode(data)
    if call.method not in RESULTS:
        raise ValueError(f"a worker has no method `{call.method}` that can be called")
    return _encoder.encode(getattr(actor, call.method)(*call.arguments))


def decode_result(method: str, data: bytes | bytearray) -> Any:
    """Decode the result that `carry_out` encoded."""
    return _result_decoders[method].decode(data)
