"""The pages, none of which needs a token: the OpenAPI document, Swagger UI, and the console's files."""

import functools
import importlib.resources
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from api.schema.envelope import Headers, Response
from api.schema.openapi import document
from api.schema.operation import Operation
from engine.language.text.lexical import contextual_keywords, keywords

_HTML_TYPE: Final = b"text/html; charset=utf-8"
_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
}
_SWAGGER: Final = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
_PLOTS: Final = {"uplot.js": "uPlot.iife.js", "uplot.css": "uPlot.min.css"}
"""The files of uPlot in the package `uplot-python`."""


def _safe(styles: bytes, more_policy: bytes = b"", *more: tuple[bytes, bytes]) -> Headers:
    """Return the headers of a page that loads only from this service, and that no page may frame."""
    policy = (
        b"default-src 'none'; script-src 'self'; style-src " + styles + b"; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" + more_policy
    )
    return (
        (b"content-security-policy", policy),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        *more,
    )


# Swagger UI has styles of its own, and draws its arrows from `data:` images.
_OF_DOCS: Final = _safe(b"'self' 'unsafe-inline'")
_KEPT: Final[Headers] = ((b"cache-control", b"public, max-age=3600"),)
# No text becomes code or HTML.
_OF_CONSOLE: Final = _safe(
    b"'self'", b"; require-trusted-types-for 'script'; trusted-types 'none'", (b"cache-control", b"no-cache")
)

_HTML: Final = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rule Detector Service: API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

_START: Final = b"""SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  validatorUrl: null,
});
"""

_TO_DOCS: Final = Response(307, b"", ((b"location", b"docs"),), b"text/plain; charset=utf-8")
"""Redirects `/` to the docs. Relative, so that it works under a prefix too."""


def docs_pages(operations: Sequence[Operation]) -> dict[str, Response]:
    """Return the OpenAPI document and Swagger UI as installed, by their paths."""
    folder = importlib.resources.files("flask_swagger_ui") / "dist"
    found = {
        f"/docs/{name}": Response(
            200, (folder / name).read_bytes(), _OF_DOCS + _KEPT, _TYPES[Path(name).suffix]
        )
        for name in _SWAGGER
    }
    found["/docs/start.js"] = Response(200, _START, _OF_DOCS, _TYPES[".js"])
    found["/docs"] = Response(200, _HTML, _OF_DOCS, _HTML_TYPE)
    found["/openapi.json"] = Response(200, msgspec.json.encode(document(operations)), _OF_DOCS)
    found["/"] = _TO_DOCS
    return found


@functools.cache
def console_pages() -> dict[str, Response]:
    """Return every file of the console by its path. Without the package with uPlot, its files are empty."""
    files = Path(str(importlib.resources.files("api.console"))) / "static"
    found = {"/console": Response(200, (files / "index.html").read_bytes(), _OF_CONSOLE, _HTML_TYPE)}
    for file in files.rglob("*"):
        if file.suffix in _TYPES:
            path = f"/console/{file.relative_to(files).as_posix()}"
            found[path] = Response(200, file.read_bytes(), _OF_CONSOLE, _TYPES[file.suffix])
    words = msgspec.json.encode(sorted(keywords() | contextual_keywords()))
    found["/console/words.json"] = Response(200, words, _OF_CONSOLE)
    for name, original in _PLOTS.items():
        found[f"/console/{name}"] = Response(200, _uplot(original), _OF_CONSOLE, _TYPES[Path(name).suffix])
    return found


def _uplot(name: str) -> bytes:
    # Importing the package would import NumPy and IPython.
    spec = importlib.util.find_spec("uplot")
    if spec is None or spec.origin is None:
        return b""
    return (Path(spec.origin).parent / "static" / name).read_bytes()
