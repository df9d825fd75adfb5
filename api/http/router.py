"""The router: Quart's URL map, filled from the table of operations and matched once per request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from quart import Quart
from quart import Response as QuartResponse
from quart.routing import QuartRule
from werkzeug.exceptions import MethodNotAllowed, NotFound

from api.http.body.memory import Reservation
from api.observability.request_metrics import CALLER_GONE
from api.schema.envelope import DeadlinePassed, RequestRefusal, Response, error_response
from api.schema.operation import Operation
from api.schema.operations import OPERATIONS
from api.server.asgi import App, Message, Receive, Scope, Send

Handler = Callable[..., Awaitable[Response]]

_BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
_MATCH: Final = "rule_detector.match"
"""The scope entry with the match that Quart is to dispatch."""


class Match(NamedTuple):
    """A matched rule and the arguments of its view, in the form of a Werkzeug URL adapter."""

    rule: QuartRule
    arguments: Mapping[str, Any]

    def match(self, *, return_rule: bool) -> "Match":
        """Return the rule and the arguments."""
        assert return_rule, "Quart asks for the rule"
        return self


class _MatchedQuart(Quart):
    """A Quart application that dispatches the match in the scope instead of matching the path again."""

    def create_url_adapter(self, request: Any) -> Any:
        """Return the match that came with the request."""
        return None if request is None else request.scope[_MATCH]


class _ExactMethodsRule(QuartRule):
    """A rule that takes the methods it names: Werkzeug adds HEAD to GET."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self.methods is not None, "every route names its methods"
        self.methods.discard("HEAD")


class Route(NamedTuple):
    """What a path and a method lead to. `operation` is None for a page."""

    rule: QuartRule
    operation: Operation | None
    ids: Mapping[str, str]


class Router:
    """Finds the route of a request, and has Quart call its handler."""

    def __init__(self, handlers: object, deadline_s: float) -> None:
        """Add a route for each operation, to the method of `handlers` with its name."""
        self.quart = quart = _MatchedQuart("rule_detector", static_folder=None)
        quart.url_rule_class = _ExactMethodsRule
        quart.config.update(
            # The request is read and its deadlines are kept before Quart sees it.
            BODY_TIMEOUT=None,
            RESPONSE_TIMEOUT=None,
            MAX_CONTENT_LENGTH=None,
            PROVIDE_AUTOMATIC_OPTIONS=False,
        )
        quart.register_error_handler(Exception, _failed)
        self._deadline_s = deadline_s
        self._urls = quart.url_map.bind("localhost")
        for operation in OPERATIONS:
            path = operation.path.replace("{", "<").replace("}", ">")
            self.add(path, operation.method, getattr(handlers, operation.name), operation.name)

    def add(self, path: str, method: str, handler: Handler, name: str | None = None) -> None:
        """Add a route."""

        async def view(**arguments: Any) -> QuartResponse:
            try:
                async with asyncio.timeout(self._deadline_s):
                    return _quart_response(await handler(**arguments))
            except TimeoutError:
                raise DeadlinePassed from None

        self.quart.add_url_rule(path, name or path, view, methods=[method])

    def find(self, path: str, method: str) -> Route:
        """Return the route of a path and a method. Raises RequestRefusal 1004 or 1005."""
        # Werkzeug tolerates empty segments and a missing leading slash.
        if "//" in path or not path.startswith("/"):
            raise no_such_path(path)
        try:
            rule, ids = self._urls.match(path, method, return_rule=True)
        except NotFound:
            raise no_such_path(path) from None
        except MethodNotAllowed as error:
            allowed = ", ".join(sorted(error.valid_methods or ()))
            message = f"the path takes {allowed}, not `{method[:20]}`"
            raise RequestRefusal(1005, message, headers=((b"allow", allowed.encode()),)) from None
        assert isinstance(rule, QuartRule), "the map holds no others"
        return Route(rule, _BY_NAME.get(rule.endpoint), ids)


def no_such_path(path: str) -> RequestRefusal:
    """Return the refusal of an unknown path."""
    return RequestRefusal(1004, f"there is no path `{path[:200]}`")


@dataclass(frozen=True)
class QuartCall:
    """A validated request whose body has been read, for Quart to answer.

    `reservation` is the memory that the body holds until the handler is done.
    """

    quart: App
    scope: Scope
    path: str
    match: Match
    reservation: Reservation

    async def serve(self, receive: Receive, send: Send) -> tuple[int, bytes]:
        """Send the response; give its status and the first part of its body."""
        # Quart needs no query and no headers: the arguments hold all that was read of them.
        bare = {
            "path": self.path,
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            _MATCH: self.match,
        }
        status, body = CALLER_GONE, b""
        messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive_after_body() -> Message:
            return messages.pop() if messages else await receive()

        async def send_on(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                body = body or message.get("body", b"")
            await send(message)

        try:
            await self.quart({**self.scope, **bare}, receive_after_body, send_on)
        finally:
            self.reservation.release()
        return status, body


async def _failed(error: Exception) -> QuartResponse:
    return _quart_response(error_response(error))


def _quart_response(response: Response) -> QuartResponse:
    headers = {name.decode(): value.decode() for name, value in response.all_headers()}
    headers.setdefault("cache-control", "no-store")
    body = _in_pieces(response.pieces) if response.rest else response.body
    return QuartResponse(body, response.status, headers)


async def _in_pieces(pieces: tuple[bytes, ...]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
