"""A caller of the application without a socket, who checks the envelope of each reply."""

import copy
import json
from dataclasses import dataclass
from typing import Any

import httpx

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Said:
    """A reply whose envelope is sound."""

    status: int
    headers: httpx.Headers
    envelope: dict[str, Any]

    @property
    def result(self) -> Any:
        assert self.envelope["success"], self.envelope
        return self.envelope["result"]

    @property
    def codes(self) -> list[int]:
        return [entry["code"] for entry in self.envelope["errors"]]

    @property
    def texts(self) -> list[str]:
        return [entry["message"] for entry in self.envelope["errors"]]


class Caller:
    """Calls with a token, which may be changed."""

    def __init__(self, app: Any, token: str | None) -> None:
        self.token = token
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")

    def other(self, token: str) -> "Caller":
        """Return a caller of the same application with another token."""
        other = copy.copy(self)
        other.token = token
        return other

    async def __call__(
        self,
        method: str,
        path: str,
        document: object = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Said:
        if document is not None:
            content = json.dumps(document).encode()
        sent = dict(JSON) if content is not None else {}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        sent.update(headers or {})
        return sound(await self.plain(method, path, content=content, headers=sent))

    async def plain(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self._client.request(method, path, **options)

    async def detector(self, name: str = "d") -> str:
        return (await self("POST", "/api/detectors", {"name": name})).result["id"]

    async def rule(self, detector: str, condition: str, **members: object) -> str:
        document = {"condition": condition, "name": "r", **members}
        return (await self("POST", f"/api/detectors/{detector}/rules", document)).result["id"]

    async def evaluate(self, detector: str, fields: dict[str, object], timestamp_ms: float = 0) -> Said:
        document = {"event": {"fields": fields, "timestamp_ms": timestamp_ms}}
        return await self("POST", f"/api/detectors/{detector}/evaluate", document)


def sound(response: httpx.Response) -> Said:
    """Check the envelope to the letter."""
    assert response.headers["content-type"] == "application/json"
    assert int(response.headers["content-length"]) == len(response.content)
    envelope = response.json()
    assert list(envelope) == ["success", "errors", "messages", "result"]
    assert envelope["success"] is (response.status_code == 200)
    for entry in [*envelope["errors"], *envelope["messages"]]:
        assert list(entry) == ["code", "message"]
        assert type(entry["code"]) is int
        assert entry["code"] >= 1000
        assert type(entry["message"]) is str
    if envelope["success"]:
        assert envelope["errors"] == []
    else:
        assert envelope["errors"]
        assert envelope["result"] == {}
        assert envelope["messages"] == []
        assert len({entry["code"] // 10 for entry in envelope["errors"]}) == 1
    return Said(response.status_code, response.headers, envelope)
