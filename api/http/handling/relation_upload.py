"""Uploads of relations: the parts of a body go to the detector's worker while it arrives."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from api.http.authentication import Authenticator
from api.http.body.reading import send_response
from api.http.body.tuple_parts import TupleParts
from api.http.request.timeout import BACKSTOP_S, RequestTimeout
from api.schema.envelope import DeadlinePassed, Response, answered, error_response
from api.server.asgi import CallerGone, Receive, Send
from engine.evaluation.wire.events import Answer, Refused
from engine.runtime.contract.requests import operations
from engine.runtime.front_end.backend import Backend


@dataclass(eq=False)
class RelationUpload:
    """One upload: the worker stages the parts, and the relation is replaced once all of them are there."""

    backend: Backend
    authenticator: Authenticator
    authorization: bytes | None
    detector_id: str
    name: str
    parts: TupleParts
    deadline_s: float
    by: str = ""
    """The id of the caller's token, a blank and its name."""

    async def serve(self, _receive: Receive, send: Send, _progress: RequestTimeout) -> None:
        """Read the body and answer. Raises CallerGone, and the relation is then as it was."""
        try:
            response = await self._uploaded()
        except CallerGone:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the caller is owed a response
            response = error_response(error)
        await send_response(response, send)

    async def _uploaded(self) -> Response:
        upload, count = secrets.token_hex(8), 0
        try:
            async for part in self.parts:
                staged = await self._call(operations.stage_tuples(upload, count, part))
                if isinstance(staged, Refused):
                    return answered(staged)
                count += 1
            if (objection := self.authenticator.objection(self.authorization)) is not None:
                # The token was revoked meanwhile.
                raise objection
            put = operations.put_relation(self.name, upload, count)._replace(by=self.by)
            count = 0
            return answered(await self._call(put, self.backend.change))
        finally:
            if count:
                self.backend.background.begin(
                    self.backend.call(self.detector_id, operations.drop_tuples(upload))
                )

    async def _call(
        self,
        operation: operations.Operation,
        call: Callable[[str, operations.Operation], Awaitable[Answer]] | None = None,
    ) -> Answer:
        try:
            async with asyncio.timeout(self.deadline_s + BACKSTOP_S):
                return await (call or self.backend.call)(self.detector_id, operation)
        except TimeoutError:
            raise DeadlinePassed from None
