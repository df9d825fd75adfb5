"""One call of the service as data: what to send, and how to read the answer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from .results import Envelope

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how to read its answer."""

    method: str
    path: str
    read: Callable[[Envelope], T]
    """Read the answer's envelope. Raises ValueError, of which msgspec's errors are kinds."""
    body: bytes | None = None
    key: str = ""
    """The idempotency key, for evaluations and batches."""
    content_type: str = "application/json"
    idempotent: bool = False
    """Whether a second request would change nothing."""
    timeout_s: float = 60.0
    """The timeout for a silent service."""

    @property
    def changes(self) -> bool:
        """Whether the request changes something, so that a second one could change it twice."""
        return not self.idempotent and self.method != "GET" and not self.path.endswith(("/explain", "/parse"))


def raw(call: Call[Any]) -> Call[bytes]:
    """Return the same call, but with the service's exact JSON as its result."""
    return replace(call, read=lambda envelope: bytes(envelope.result))


def typed(type_: type[T]) -> Callable[[Envelope], T]:
    """Read a result of that type."""
    return lambda envelope: msgspec.json.decode(envelope.result, type=type_)


def listed(member: str, type_: type[T]) -> Callable[[Envelope], list[T]]:
    """Read a result with a list of that type, and return the list."""
    return lambda envelope: list_in(envelope.result, member, type_)


def list_in(result: bytes | msgspec.Raw, member: str, type_: type[T]) -> list[T]:
    """Return the list of that type in a result. Raises msgspec.ValidationError."""
    whole = msgspec.json.decode(result, type=_with_list(member, type_))  # type: ignore[arg-type]  # hashable
    return getattr(whole, member)  # type: ignore[no-any-return]  # its type


@cache
def _with_list(member: str, type_: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct("Result", [(member, list[type_])])


def with_messages(type_: type[S]) -> Callable[[Envelope], S]:
    """Read a result whose `messages` are those of the envelope."""
    return lambda envelope: msgspec.structs.replace(
        msgspec.json.decode(envelope.result, type=type_), messages=envelope.messages
    )


def path_of(*parts: str) -> str:
    """Return the path of segments below /api."""
    return "/api/" + "/".join(quote(part, safe=":") for part in parts)


def post(path: str, type_: type[T], document: object = msgspec.UNSET) -> Call[T]:
    """Return the call that posts a document as JSON, if there is one."""
    body = None if document is msgspec.UNSET else msgspec.json.encode(document)
    return Call("POST", path, typed(type_), body)
