"""The OpenAPI 3.1 document, generated from the operations and the types of their messages."""

import ast
import importlib.metadata
import inspect
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

import msgspec

from api.schema.condition_schemas import condition_schemas
from api.schema.envelope import CODES, CSV, MESSAGE_CODES, NDJSON, PROTOBUF, Failure
from api.schema.examples import EVENT, TUPLES
from api.schema.messages import catalogue, cluster, evaluations, inspecting, rules
from api.schema.operation import ANY, NONE, Operation

_REFERENCE: Final = "#/components/schemas/{name}"
_MESSAGES: Final = {
    name: member
    for module in (catalogue, cluster, evaluations, inspecting, rules)
    for name, member in vars(module).items()
    if isinstance(member, type)
    and issubclass(member, msgspec.Struct)
    and member.__module__ == module.__name__
}
"""The messages whose fields have texts."""
_PARAMETER: Final = re.compile(r"{(\w+)}")
_HEADERS: Final = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer`."}},
    429: {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}},
    503: {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait, where known."}},
}


_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "_An addition to the interface._ Makes the request safe to retry: within ten minutes, "
    "another request with the same key and body gets the answer of the first, and nothing is evaluated "
    "again. With another body, or for another of the operations that take keys, it is refused with `1006`. "
    "Refused requests are not remembered. Keys belong to one detector. Use a new key, such as a UUID, for "
    "each new request.",
    # No example: Swagger UI would send it each time, and be refused the second time.
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


_ENCODING: Final = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "_An addition to the interface._ `gzip`, if the body is. Limits apply once inflated.",
    "schema": {"enum": ["gzip", "identity"]},
}
_IN_PROTOBUF: Final = {
    "schema": {
        "type": "string",
        "contentMediaType": PROTOBUF.decode(),
        "description": "The same in protobuf, as OTLP defines it.",
    },
    "example": "",
}
_RECORDS_SENT: Final = {
    "schema": {"type": "string", "description": "In each line the fields of an event."},
    "example": msgspec.json.encode(EVENT["fields"]).decode() + "\n",
}
_LINES_SENT: Final = {
    "schema": {"type": "string", "description": "In each line the body of an evaluation, or its `event`."},
    "example": msgspec.json.encode({"event": EVENT}).decode() + "\n",
}
_LINES_ANSWERED: Final = {
    "schema": {
        "type": "string",
        "description": "An EventResult for each line, then `done`, the number of lines, with `errors` if the "
        "stream ended early.",
    },
    "example": '{"actions":[]}\n{"done":1}\n',
}

_TUPLES_SENT: Final = {
    NDJSON: {
        "schema": {"type": "string", "description": "A tuple in each line, as JSON."},
        "example": "".join(msgspec.json.encode(one).decode() + "\n" for one in TUPLES),
    },
    CSV: {
        "schema": {"type": "string", "description": "A tuple in each row."},
        "example": "".join(",".join(one) + "\n" for one in TUPLES),
    },
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of some operations as plain data."""
    shapes = [operation.result for operation in operations] + [Failure]
    bodies = [operation.body for operation in operations if operation.body is not None]
    schemas, components = msgspec.json.schema_components([*shapes, *bodies], ref_template=_REFERENCE)
    for name, message in _MESSAGES.items():
        for field, text in field_texts(message).items() if name in components else ():
            components[name]["properties"][field]["description"] = text
    components.update(condition_schemas())
    results = dict(zip((operation.name for operation in operations), schemas, strict=False))
    takers = [operation.name for operation in operations if operation.body is not None]
    taken = dict(zip(takers, schemas[len(shapes) :], strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, results[operation.name], taken.get(operation.name))
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rule Detector Service",
            "version": importlib.metadata.version("rule-detector"),
            "description": _description(),
        },
        # It is relative to this document, so that it works behind a proxy that adds a prefix.
        "servers": [{"url": "."}],
        "tags": [
            {"name": "tokens", "description": "Credentials of callers."},
            {"name": "detectors", "description": "Each has rules and a history."},
            {"name": "rules", "description": "Each has a condition over that history."},
            {"name": "relations", "description": "Tuples that conditions look up."},
            {"name": "evaluation", "description": "Events in, actions out."},
            {"name": "conditions", "description": "The language of conditions, without a detector."},
            {"name": "changes", "description": "Who changed what."},
            {"name": "cluster", "description": "Nodes, workers, and which detectors they have."},
            {"name": "service", "description": "The service itself."},
        ],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of this service: `Authorization: Bearer TOKEN`. Operations list "
                    "the scope that the token needs, if it has scopes.",
                }
            },
        },
    }


def _description() -> str:
    codes = "\n".join(f"| {code} | {error.status} | {error.meaning} |" for code, error in CODES.items())
    message_codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in MESSAGE_CODES.items())
    return (
        "Stores detectors, evaluates their rules at events, and returns the actions of the rules that "
        "fired.\n\nEvery response is an object of exactly `success`, `errors`, `messages` and `result`. On "
        "failure `result` is empty, `errors` says why, and the first error sets the status.\n\nEvery "
        "response has an `X-Request-ID`: that of the request, or a new one. The service's log uses it to "
        "identify requests.\n\nWherever a path has a detector's id, `name:` and its name work too (an "
        "addition to the interface).\n\n"
        # Collapsed, because the tables are longer than all operations.
        "<details>\n<summary>All codes of `errors` and `messages`</summary>\n\n"
        f"| code in `errors` | status | |\n|---|---|---|\n{codes}\n\n"
        f"| code in `messages` | |\n|---|---|\n{message_codes}\n\n</details>\n"
    )


def _operation(operation: Operation, result: dict[str, Any], body: dict[str, Any] | None) -> dict[str, Any]:
    marked = "_An addition to the interface._ " if operation.is_addition else ""
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary + (" (addition)" if operation.is_addition else ""),
        "description": marked + operation.text,
        "tags": [_tag(operation)],
        "parameters": [
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": f"The {_meant(operation, name)}'s {'name' if name == 'name' else 'id'}.",
                "schema": {"type": "string"},
            }
            for name in _PARAMETER.findall(operation.path)
        ]
        + _query(operation)
        + ([_KEY] if operation.is_evaluation else [])
        + ([_ENCODING] if body is not None else []),
        "responses": {
            "200": {
                "description": "Done",
                "content": {
                    "application/json": {
                        "schema": result if operation.is_bare else _envelope(result),
                        "example": operation.result_example
                        if operation.is_bare
                        else {
                            "success": True,
                            "errors": [],
                            "messages": [],
                            "result": operation.result_example,
                        },
                    }
                },
            },
            **_failures(operation.codes),
        },
    }
    if NDJSON in operation.media_types and not operation.is_upload:
        described["responses"]["200"]["content"][NDJSON.decode()] = _LINES_ANSWERED
    if operation.is_bare:
        described["responses"]["200"]["content"][PROTOBUF.decode()] = _IN_PROTOBUF
    if operation.scope == NONE:
        described["security"] = [{}, {"token": []}] if operation.says_more else []
    else:
        described["security"] = [{"token": [] if operation.scope == ANY else [operation.scope]}]
    if body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {
                media_type.decode(): _sent(operation, media_type, body)
                for media_type in operation.media_types
            },
        }
    if operation.takes_any_type:
        described["requestBody"]["content"][NDJSON.decode()] = _RECORDS_SENT
    return described


def _sent(operation: Operation, media_type: bytes, body: dict[str, Any]) -> dict[str, Any]:
    if operation.is_upload and media_type in _TUPLES_SENT:
        return _TUPLES_SENT[media_type]
    if media_type == NDJSON:
        return _LINES_SENT
    if media_type == PROTOBUF:
        return _IN_PROTOBUF
    return {"schema": body, "example": operation.body_example}


def _query(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    texts = field_texts(operation.query)
    return [
        {
            "name": parameter.encode_name,
            "in": "query",
            "required": False,
            "description": f"_An addition to the interface._ {texts[parameter.name]}",
            "schema": msgspec.json.schema(parameter.type),
        }
        for parameter in msgspec.structs.fields(operation.query)
    ]


def _meant(operation: Operation, parameter: str) -> str:
    if parameter == "detectorId":
        return "detector"
    if "/rules/" in operation.path:
        return "rule"
    if "/relations/" in operation.path:
        return "relation"
    return "node" if "/nodes/" in operation.path else "token"


def _tag(operation: Operation) -> str:
    match operation.path.split("/")[1:]:
        case ["api", "token" | "tokens", *_]:
            return "tokens"
        case ["api", "cluster", *_]:
            return "cluster"
        case ["api", "changes"]:
            return "changes"
        case ["api", "conditions", *_]:
            return "conditions"
        case ["api", "detectors", _, "rules" | "relations" as tag, *_]:
            return tag
        case ["api", "detectors", _, "evaluate" | "explain", *_]:
            return "evaluation"
        case ["api", "detectors", *_]:
            return "detectors"
        case _:
            return "service"


def _envelope(result: dict[str, Any]) -> dict[str, Any]:
    entries = {"type": "array", "items": {"$ref": _REFERENCE.format(name="EntryOfReply")}}
    return {
        "type": "object",
        "properties": {
            "success": {"const": True},
            "errors": {**entries, "maxItems": 0},
            "messages": entries,
            "result": result,
        },
        "required": ["success", "errors", "messages", "result"],
        "additionalProperties": False,
    }


def _failures(codes: Iterable[int]) -> dict[str, Any]:
    by_status: dict[int, list[int]] = {}
    for code in codes:
        by_status.setdefault(CODES[code].status, []).append(code)
    return {str(status): _failure(status, found) for status, found in sorted(by_status.items())}


def _failure(status: int, codes: list[int]) -> dict[str, Any]:
    meanings = "\n".join(f"* `{code}` {CODES[code].meaning}" for code in codes)
    described: dict[str, Any] = {
        "description": f"{HTTPStatus(status).phrase}\n\n{meanings}",
        "content": {
            "application/json": {
                "schema": {"$ref": _REFERENCE.format(name="Failure")},
                "examples": {
                    str(code): {
                        "summary": CODES[code].meaning,
                        "value": {
                            "success": False,
                            "errors": [{"code": code, "message": _EXAMPLES[code]}],
                            "messages": [],
                            "result": {},
                        },
                    }
                    for code in codes
                },
            }
        },
    }
    if status in _HEADERS:
        described["headers"] = _HEADERS[status]
    return described


_EXAMPLES: Final = {
    1000: "the body is not JSON: invalid character (byte 13)",
    1001: "event.timestamp_ms: expected a number, got a string",
    1002: "expected the Content-Type `application/json`, got `text/plain`",
    1003: "the body is larger than 1048576 bytes",
    1006: "the headers are larger than 16384 bytes together",
    1100: "the header `Authorization: Bearer TOKEN` is missing",
    1101: "the token is unknown or revoked",
    1102: "the token does not have the scope `write`",
    1200: "there is no detector `6f1c2a9be07d4c58a3f0d1e2b3c4d5e6`",
    1201: "there is no rule `0b7d3c41f2a84e6d9c5b1a0f8e7d6c5b` in this detector",
    1202: "there is no token `6f1c2a9be07d4c58a3f0d1e2b3c4d5e6`",
    1203: "there is no relation `known_hosts`",
    1204: "there is no living node `9f3c1d9f3c1d` that takes detectors",
    1300: "line 1, column 6: expected a value\n  a == \n       ^",
    1301: "all[1].leaf.op: expected an operator, got `equals`",
    1302: "leaf.value: the pattern is refused: missing closing ): `(`",
    1303: "the condition is deeper than 64",
    1400: "the detector has 100000 rules; limit 100000",
    1401: "too many requests wait for this detector",
    1402: "the event is more than 300000 ms late; send recorded events to a new detector",
    1500: "an internal error; its reference is 3f9ac1d2e4b5",
    1501: "the detector is starting",
    1502: "the deadline passed before an answer; whether the request was carried out is not known",
    1503: "the server is shutting down",
}


def field_texts(message: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings of fields by the fields' names, including fields of base classes."""
    found: dict[str, str] = {}
    for base in reversed(message.__mro__):
        if base is msgspec.Struct or not issubclass(base, msgspec.Struct):
            continue
        [definition] = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef), "a message is a class"
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = " ".join(said.split())
    return found
