"""Batches and replies as bytes, for actors in processes of their own."""

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.runtime.contract.requests.calls import Reply
from engine.runtime.contract.requests.operations import Operation


class _Batch(msgspec.Struct, array_like=True):
    operations: list[Operation]


_encoder: Final = msgspec.msgpack.Encoder()
_batch_decoder: Final = msgspec.msgpack.Decoder(_Batch)
_reply_decoder: Final = msgspec.msgpack.Decoder(Reply)


def encode_batch(batch: Sequence[Operation]) -> bytes:
    """Encode a batch."""
    return _encoder.encode(_Batch(list(batch)))


def decode_batch(data: bytes | bytearray) -> list[Operation]:
    """Decode a batch."""
    return _batch_decoder.decode(data).operations


def encode_reply(reply: Reply) -> bytes:
    """Encode a reply."""
    return _encoder.encode(reply)


def decode_reply(data: bytes | bytearray) -> Reply:
    """Decode a reply."""
    return _reply_decoder.decode(data)
