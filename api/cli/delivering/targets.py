"""Where firings go: a webhook, a file or standard output."""

import asyncio
import errno
import hashlib
import hmac
import json
import os
import re
import stat
import threading
import time
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

import httpx

from api.cli.printing.terminal import escaped
from engine.runtime.concurrency.threads import Threads
from snapshots.files import FILE_MODE, RealFiles

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ANSWER_BYTES_MAX: Final = 64 * 1024
"""A connection with a longer answer is not reused."""
_SUCCESS: Final = range(200, 300)
_ERRORS_FROM: Final = 400
_PASSING: Final = frozenset({408, 425, 429})
_CALLERS: Final = range(300, 500)
"""The statuses that blame the request or its address. Redirections are not followed."""
_REDIRECTIONS: Final = range(300, 400)
_REDIRECTED: Final = ", a redirection, and none is followed: give the address where it leads"
_RETRY_AFTER_S_MAX: Final = 3_600.0
_PORT_MAX: Final = 65_535
_STANDARD_OUTPUT: Final = 1
_TOLD_CHARS_MAX: Final = 200
_SECRET_CHARS: Final = 4
"""Shorter parts of an address are not secret."""


class TargetError(ValueError):
    """The given target is invalid."""


class DeliveryError(Exception):
    """A firing was not accepted. The message does not name the address, which may be a secret."""

    def __init__(
        self, message: str, detail: str = "", *, final: bool = False, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.detail = detail
        """Text after the message that may differ each time."""
        self.final = final
        """Whether the target would refuse the firing again."""
        self.retry_after_s = retry_after_s


class Target(Protocol):
    """Receives firings. A firing that is sent again may arrive twice."""

    def __str__(self) -> str:
        """Name the target without its secrets."""

    async def send(self, body: bytes, content_type: str, key: str) -> None:
        """Deliver a body, which `key` identifies. Raises DeliveryError."""

    def sync(self) -> None:
        """Return once sent firings are as safe as possible. May be called in a thread. Raises OSError."""


class Webhook(Target):
    """Receives each firing as the body of a POST."""

    def __init__(self, http: httpx.AsyncClient, url: httpx.URL, secret: str | None, timeout_s: float) -> None:
        self._http, self._url, self._secret, self._timeout_s = http, url, secret, timeout_s

    def __str__(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc.decode('ascii')}"

    async def send(self, body: bytes, content_type: str, key: str) -> None:
        """Send a request, signed if there is a secret. Raises DeliveryError."""
        headers = {"Content-Type": content_type, "Idempotency-Key": f'"{key}"'}
        if self._secret is not None:
            signature = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Rule-Detector-Signature"] = f"sha256={signature}"
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                answer = b""
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > _ANSWER_BYTES_MAX:
                        break
        except (httpx.TimeoutException, TimeoutError):
            raise DeliveryError("it did not answer in time") from None
        except httpx.HTTPError as error:
            raise DeliveryError(f"the connection failed: {str(error).lower() or 'it was closed'}") from None
        status, message = response.status_code, f"it answered {response.status_code}"
        if status in _SUCCESS and (inside := _status_inside(answer)) is not None:
            status, message = inside, f"{message}, with the error {inside} inside"
        if status not in _SUCCESS:
            raise DeliveryError(
                message,
                _REDIRECTED if status in _REDIRECTIONS else self._told(answer),
                final=status in _CALLERS and status not in _PASSING,
                retry_after_s=_retry_after_s(response.headers.get("Retry-After", "")),
            )

    def _told(self, answer: bytes) -> str:
        """Return the beginning of the target's answer, unless it is a web page or may contain a secret."""
        text = " ".join(answer.decode("utf-8", "ignore").split())
        parts = re.split("[/?&=]", unquote(self._url.raw_path.decode("ascii")))
        secrets = {self._secret or "", self._url.password, *parts}
        known = unquote(text)
        if text.startswith("<") or any(len(one) >= _SECRET_CHARS and one in known for one in secrets):
            return ""
        text = "".join(filter(str.isprintable, text))
        if not text:
            return ""
        return f": {text}" if len(text) <= _TOLD_CHARS_MAX else f": {text[: _TOLD_CHARS_MAX - 1]}…"

    def sync(self) -> None:
        """Return at once, because the receiver is responsible for what it has accepted."""


class Appended(Target):
    """A file to which each firing is appended as a line. If it is renamed, a new one is created."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        self._path = path
        self._descriptor = self._opened()
        self._lock = threading.Lock()
        """Held while the descriptor is used or changed; `sync` runs in a thread."""

    def __str__(self) -> str:
        return str(self._path)

    async def send(self, body: bytes, content_type: str, key: str) -> None:
        """Append a line. Raises DeliveryError."""
        del content_type, key
        try:
            self.append(body)
        except OSError as error:
            raise DeliveryError((error.strerror or str(error)).lower()) from None

    def sync(self) -> None:
        """Return once the lines are on the disk. Raises OSError."""
        with self._lock:
            descriptor = os.dup(self._descriptor)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, body: bytes) -> None:
        """Append a line, or leave the file unchanged. Raises OSError."""
        with self._lock:
            self._append(body + b"\n")

    def _append(self, line: bytes) -> None:
        if not self._is_named():
            opened = self._opened()
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = opened
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            # A crash has cut off the last line. Its firing is delivered again.
            line = b"\n" + line
        try:
            _write(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def _is_named(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _opened(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
        RealFiles().sync_folder(self._path.absolute().parent)
        return descriptor


class Printed(Target):
    """Standard output, on which each firing is a line."""

    def __init__(self) -> None:
        # A pipe that nobody reads blocks its writer, perhaps for ever. A daemon thread delays no exit.
        self._writer = Threads("standard output")

    def __str__(self) -> str:
        return "standard output"

    async def send(self, body: bytes, content_type: str, key: str) -> None:
        """Print a line. Raises OSError if there is no reader any more, which no retry can fix."""
        del content_type, key
        # Not through `sys.stdout`: an exit would wait for its lock.
        line = f"{escaped(body.decode())}\n".encode()
        await self._writer.call(partial(_write, _STANDARD_OUTPUT, line))

    def sync(self) -> None:
        """Return at once, because the reader is responsible for what it has read."""


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def target_of(address: str, secret: str | None, timeout_s: float) -> Target:
    """Return the target at an address, in a file, or standard output for `-`. Raises TargetError, OSError."""
    if address == "-" or "://" not in address:
        if secret is not None:
            raise TargetError("`--secret-file` signs requests; the target is a file")
        return Printed() if address == "-" else Appended(Path(address))
    try:
        url = httpx.URL(address)
        is_known = url.scheme in ("http", "https") and bool(url.host) and (url.port or 0) <= _PORT_MAX
    except (httpx.InvalidURL, UnicodeError):
        is_known = False
    if not is_known:
        raise TargetError("the target's address is no URL of http or https")
    # Each detector may have a request in progress. A proxy in the environment is not for this machine.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    http = httpx.AsyncClient(limits=limits, timeout=timeout_s, trust_env=url.host not in _LOOPBACK)
    return Webhook(http, url, secret, timeout_s)


def _status_inside(answer: bytes) -> int | None:
    """Return the status of an error inside a success, as Kafka's REST Proxy reports it; else None.

    Its `error_code` is a status, or begins with one.
    """
    try:
        code = json.loads(answer)["error_code"]
        status = int(str(code)[:3])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return status if type(code) is int and code >= _ERRORS_FROM else None


def _retry_after_s(header: str) -> float:
    """Return the seconds to wait that a server requests, as a number or a date; 0 if it requests none."""
    try:
        asked_s = float(header)
    except ValueError:
        try:
            asked_s = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(asked_s, 0.0), _RETRY_AFTER_S_MAX)
