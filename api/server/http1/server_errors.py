"""The server's own responses: to what is not a request, and where the application gives none."""

import logging
import secrets
from typing import Final

from api.schema.envelope import Response, failure
from engine.language.diagnostics import Entry

_log = logging.getLogger("rule_detector.api")

_MEANINGS: Final = {
    400: "the request is not HTTP/1.1 by its grammar",
    431: "the head of the request is too large, or a line of its body's framing",
    501: "Transfer-Encoding: `chunked` is the only one that is known",
    505: "the protocol is HTTP/1.1; no other version is served",
}


def server_error(status: int) -> Response:
    """Return the response, after which the connection ends.

    Code 1006 stands for whatever cannot be read as a request, and has the status 400, so 431 and 501 become
    400. Only another version of HTTP keeps its status, 505.
    """
    if status not in _MEANINGS:
        reference = secrets.token_hex(6)
        _log.error("internal error %s: the application ended without an answer", reference)
        entry = Entry(1500, f"an internal error; its reference is {reference}")
        return failure(500, [entry]).closing()
    return failure(505 if status == 505 else 400, [Entry(1006, _MEANINGS[status])]).closing()  # noqa: PLR2004
