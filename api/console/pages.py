"""The files of the console by their paths. They hold nothing secret and need no token."""

import functools
import importlib.util
from pathlib import Path
from typing import Final

import msgspec

from api.schema.envelope import Headers, Response
from engine.language.text.lexical import contextual_keywords, keywords

_FILES: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}

# Nothing comes from elsewhere, no text becomes code or HTML, and no other page can frame this one.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_SAFE: Final[Headers] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)

_PLOTS: Final = {"uplot.js": "uPlot.iife.js", "uplot.css": "uPlot.min.css"}
"""The files of uPlot, as the package `uplot-python` has them."""


@functools.cache
def console_pages() -> dict[str, Response]:
    """Return every file by its path. Without the package with uPlot, its files are empty."""
    found = {
        "/console": Response(200, (_FILES / "index.html").read_bytes(), _SAFE, b"text/html; charset=utf-8")
    }
    for file in _FILES.rglob("*"):
        if file.suffix in _TYPES:
            path = f"/console/{file.relative_to(_FILES).as_posix()}"
            found[path] = Response(200, file.read_bytes(), _SAFE, _TYPES[file.suffix])
    words = msgspec.json.encode(sorted(keywords() | contextual_keywords()))
    found["/console/words.json"] = Response(200, words, _SAFE)
    for name, original in _PLOTS.items():
        found[f"/console/{name}"] = Response(200, _uplot(original), _SAFE, _TYPES[Path(name).suffix])
    return found


def _uplot(name: str) -> bytes:
    # Importing the package would import NumPy and IPython.
    spec = importlib.util.find_spec("uplot")
    if spec is None or spec.origin is None:
        return b""
    return (Path(spec.origin).parent / "static" / name).read_bytes()
