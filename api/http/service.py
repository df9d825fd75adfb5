"""The Quart application: its requests, their handling, and the responses to errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast

import quart
from quart.asgi import ASGIHTTPConnection
from quart.routing import QuartRule
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory, Reservation
from api.http.body.ndjson_stream import NdjsonStream, NdjsonStreams
from api.http.handling.event_stream import EventStream, EventStreams, FeedStreams
from api.http.handling.relation_upload import RelationUpload
from api.http.request.head import canonical_path
from api.http.request.timeout import RequestTimeout
from api.observability.readiness import Readiness
from api.schema.envelope import RequestRefusal, Response, answered, error_response
from api.schema.operation import Operation
from api.server.exchange import Receive, Send
from api.server.requests import FIELDS_STATE, Fields
from api.settings import Settings
from engine.evaluation.wire.bodies import decode
from engine.runtime.contract.requests import operations
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import Permit

T = TypeVar("T")

PROGRESS: Final = "progress"
"""The key of a request's RequestTimeout in its ASGI state."""

DECODED_AT_ONCE_BYTES_MAX: Final = 4 * 1024
"""Larger bodies are decoded in a thread, so that they do not block the event loop."""

_PARSERS: Final = 2
"""Threads that parse conditions; a long text keeps one busy for up to a second."""
_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""The paths for which load balancers send HEAD requests."""
_DECODERS: Final = 2
"""Threads that decode bodies, so that parsing does not delay them."""


class Request(quart.Request):
    """A request of Quart, and the results of the checks."""

    receive: Receive
    progress: RequestTimeout
    permit: Permit
    """The caller's permit. Requests that need no token have none."""
    reservation: Reservation | None = None
    """The memory that the body holds until the response is sent."""
    media_type: bytes = b""
    """The media type of the body; empty for an operation without one."""

    @property
    def head(self) -> Fields:
        """The header fields."""
        found: Fields = self.scope["state"][FIELDS_STATE]
        return found

    @property
    def operation(self) -> Operation | None:
        """The operation at the path; None for a page and an unknown path."""
        return service.operations.get(self.endpoint or "")


class _Connection(ASGIHTTPConnection):
    """Lets Quart handle a request until its deadline, or until the caller has gone.

    Quart's own class would receive the whole body, however large, while the request is still being checked.
    """

    async def __call__(self, receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Answer the request. Raises CallerGone."""
        request = cast("Request", self._create_request_from_scope(cast("Any", send)))
        request.receive = receive
        request.progress = self.scope["state"][PROGRESS]
        try:
            with request.progress:
                response = await self.app.handle_request(request)
        except Exception as error:  # noqa: BLE001 -- the deadline, or the memory of the body was lost
            response = quart_response(error_response(error))
        try:
            if isinstance(response, _Streamed):
                await response.stream.serve(request.receive, send, request.progress)
            else:
                await self._send_response(cast("Any", send), response)
        finally:
            if request.reservation is not None:
                request.reservation.release()


class _ExactMethodsRule(QuartRule):
    """A rule for exactly its methods: Werkzeug adds HEAD to GET, which only probes take."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self.methods is not None, "every route names its methods"
        if self.rule not in _PROBES:
            self.methods.discard("HEAD")


class _Streamed(quart.Response):
    """A response that may begin while the body of its request still arrives."""

    def __init__(self, stream: NdjsonStream | EventStream | RelationUpload) -> None:
        super().__init__()
        self.stream = stream


class Service(quart.Quart):
    """The application, with the services that its routes need."""

    request_class = Request
    asgi_http_class = _Connection  # type: ignore[assignment]
    url_rule_class = _ExactMethodsRule

    def __init__(
        self, settings: Settings, backend: Backend, memory: BodyMemory, operations_: Mapping[str, Operation]
    ) -> None:
        """`operations_` are the operations of the routes, by endpoint."""
        super().__init__("rule_detector", static_folder=None)
        self.url_map.merge_slashes = False
        self.config.update(PROVIDE_AUTOMATIC_OPTIONS=False, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None)
        self.operations = operations_
        self.settings = settings
        self.limits = settings.limits()
        self.backend = backend
        self.memory = memory
        self.authenticator = Authenticator(backend, settings.bootstrap_token)
        self.readiness = Readiness(backend.status)
        self.streams = NdjsonStreams(settings, backend, self.authenticator, memory)
        self.timelines = EventStreams(backend, self.authenticator)
        self.feeds = FeedStreams(backend, self.authenticator)
        self.listing = asyncio.Lock()
        """Held while a list of all detectors is made."""
        self.parsers = ThreadPoolExecutor(_PARSERS, thread_name_prefix="parse")
        self._decoders = ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode")
        self.after_serving(self._end_threads)
        self.register_error_handler(NotFound, _no_such_path)
        self.register_error_handler(MethodNotAllowed, _no_such_method)
        self.register_error_handler(Exception, _failed)

    async def _end_threads(self) -> None:
        for executor in (self.parsers, self._decoders):
            executor.shutdown(wait=False, cancel_futures=True)

    def create_url_adapter(self, request: Any) -> MapAdapter | None:
        """Match by the path alone, regardless of `Host`."""
        if request is None:
            return None
        return self.url_map.bind("localhost", path_info=request.path, default_method=request.method)

    async def make_response(self, result: Any) -> Any:
        """Return a response of Quart for what a view returns."""
        if isinstance(result, Response):
            return quart_response(result)
        if isinstance(result, (NdjsonStream, EventStream, RelationUpload)):
            return _Streamed(result)
        return await super().make_response(result)

    async def call(self, detector_id: str, operation: operations.Operation) -> Response:
        """Execute an operation on a detector, and return the response."""
        return answered(await self.backend.call(detector_id, operation))

    async def change(self, detector_id: str, operation: operations.Operation) -> Response:
        """Execute and log a change of a detector by the caller, and return the response."""
        changed = operation._replace(by=request.permit.token.label)
        return answered(await self.backend.change(detector_id, changed))

    async def decode(self, body: bytes, type_: type[T]) -> T:
        """Decode a body, a larger one in a thread. Raises Refusal 1000 or 1001."""
        return await self.work(partial(decode, body, type_, self.limits), len(body))

    async def work(self, work: Callable[[], T], bytes_: int) -> T:
        """Do work on a number of bytes; in a thread if they are many."""
        if bytes_ <= DECODED_AT_ONCE_BYTES_MAX:
            return work()
        done: T = await asyncio.get_running_loop().run_in_executor(self._decoders, work)
        return done


service = cast("Service", quart.current_app)
"""The application that handles the current request."""
request = cast("Request", quart.request)
"""The current request."""


async def _no_such_path(_: NotFound) -> quart.Response:
    path = canonical_path(request.scope["raw_path"])
    refusal = RequestRefusal(1004, f"there is no path `{path[:200]}`")
    return quart_response(error_response(refusal))


async def _no_such_method(error: MethodNotAllowed) -> quart.Response:
    allowed = ", ".join(sorted(error.valid_methods or ()))
    message = f"the path takes {allowed}, not `{request.method[:20]}`"
    refusal = RequestRefusal(1005, message, headers=((b"allow", allowed.encode()),))
    return quart_response(error_response(refusal))


async def _failed(error: Exception) -> quart.Response:
    return quart_response(error_response(error))


def quart_response(response: Response) -> quart.Response:
    """Return Quart's form of a response."""
    headers = {name.decode(): value.decode() for name, value in response.all_headers()}
    headers.setdefault("cache-control", "no-store")
    body = _in_pieces(response.pieces) if response.rest else response.body
    return quart.Response(body, response.status, headers)


async def _in_pieces(pieces: tuple[bytes, ...]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
