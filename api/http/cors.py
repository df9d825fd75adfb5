"""Cross-origin requests: which pages of other origins may read responses, and what they may send."""

from dataclasses import dataclass
from typing import Final

from api.schema.envelope import Headers, Response
from api.server.requests import Fields

_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_TAKEN: Final = (
    b"Authorization, Content-Type, Content-Encoding, Idempotency-Key, Last-Event-ID, "
    b"X-Request-ID, traceparent"
)
_SHOWN: Final = b"Allow, Retry-After, X-Request-ID"
_KEPT_S: Final = 600
"""How long a browser may keep the answer to a preflight request."""
_VARY: Final = (b"vary", b"Origin")


@dataclass(frozen=True)
class Cors:
    """The origins whose pages may read responses. No browser adds credentials of its own for them."""

    origins: frozenset[bytes]

    def preflight(self, method: str, head: Fields) -> Response | None:
        """Return the response to a listed origin that asks what it may send; None for all other requests."""
        if method != "OPTIONS" or (origin := self._listed(head)) is None:
            return None
        if b"access-control-request-method" not in head.found:
            return None
        said = (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _TAKEN),
            (b"access-control-max-age", b"%d" % _KEPT_S),
            _VARY,
        )
        return Response(200, b"", said, b"text/plain; charset=utf-8")

    def headers(self, head: Fields) -> Headers:
        """Return what is added to the response to any other request."""
        origin = self._listed(head)
        if origin is None:
            return (_VARY,)
        shown = (b"access-control-expose-headers", _SHOWN)
        return ((b"access-control-allow-origin", origin), shown, _VARY)

    def _listed(self, head: Fields) -> bytes | None:
        origin = head.only(b"origin")
        return origin if origin in self.origins else None


def cors_of(origins: str | None) -> Cors | None:
    """Return what the setting says; None if pages of other origins may read nothing."""
    return Cors(frozenset(one.strip().encode() for one in origins.split(","))) if origins else None
