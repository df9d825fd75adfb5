"""The server's own responses: to bytes that are no request, and when the application gives no response."""

import logging
import secrets
from typing import Final

from api.schema.envelope import Response, failure
from api.server.http1.request_head import FIELDS_MAX, TARGET_BYTES_MAX
from engine.language.diagnostics import Entry

_log = logging.getLogger("rule_detector.api")

_MEANINGS: Final = {
    400: "the request is not HTTP/1.1 by its grammar",
    414: f"the target of the request, its path and query, is longer than {TARGET_BYTES_MAX} bytes",
    431: "the head of the request, or a line of its body's framing, is too large; "
    f"a head has at most {FIELDS_MAX} fields",
    501: "Transfer-Encoding: only `chunked` is supported",
    505: "only HTTP/1.1 is supported",
}


def server_error(status: int) -> Response:
    """Return the response, after which the connection ends.

    Whatever cannot be read as a request has the code 1006 and its status 400, even where HTTP has 414, 431
    or 501. Only another version of HTTP keeps its status, 505.
    """
    if status not in _MEANINGS:
        reference = secrets.token_hex(6)
        _log.error("internal error %s: the application ended without an answer", reference)
        entry = Entry(1500, f"an internal error; its reference is {reference}")
        return failure(500, [entry]).closing()
    return failure(505 if status == 505 else 400, [Entry(1006, _MEANINGS[status])]).closing()  # noqa: PLR2004
