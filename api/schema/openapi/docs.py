"""The pages that describe the API: the OpenAPI document, and Swagger UI as installed."""

import importlib.resources
from collections.abc import Sequence
from typing import Final

import msgspec

from api.schema.envelope import Headers, Response
from api.schema.openapi.document import document
from api.schema.operation import Operation

_ASSETS: Final = {
    "swagger-ui.css": b"text/css; charset=utf-8",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "favicon-32x32.png": b"image/png",
}

# Swagger UI draws its arrows from `data:` images. Everything else is loaded from this service only.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE: Final[Headers] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_KEPT: Final[Headers] = ((b"cache-control", b"public, max-age=3600"),)

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


TO_DOCS: Final = Response(307, b"", ((b"location", b"docs"),), b"text/plain; charset=utf-8")
"""Redirects `/` to the docs. Relative, so that it works under a prefix too."""


def pages(operations: Sequence[Operation]) -> dict[str, Response]:
    """Return every page by its path; none needs a token."""
    folder = importlib.resources.files("flask_swagger_ui") / "dist"
    found = {
        f"/docs/{name}": Response(200, (folder / name).read_bytes(), _SAFE + _KEPT, kind)
        for name, kind in _ASSETS.items()
    }
    found["/docs/start.js"] = Response(200, _START, _SAFE, b"text/javascript; charset=utf-8")
    found["/docs"] = Response(200, _HTML, _SAFE, b"text/html; charset=utf-8")
    found["/openapi.json"] = Response(200, msgspec.json.encode(document(operations)), _SAFE)
    return found
