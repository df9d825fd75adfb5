"""A service for the commands: it answers HTTP requests from what it holds, without a socket."""

import asyncio
import json
from importlib import import_module
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec
import pytest

from api.http.handling.condition_bodies import parse_condition, put_rules_operation
from api.http.handling.state_view import state_view
from api.http.request.query import read_query
from api.schema.messages.catalogue import PAGE_MAX
from api.schema.messages.inspecting import StateQuery
from api.schema.messages.rules import RulesQuery
from engine import Detector, Entry, Refusal
from engine import format as canonical
from engine.evaluation.inspecting.comparisons import comparison_of
from engine.evaluation.inspecting.explanations import explain_body
from engine.evaluation.inspecting.lists import RulesAsked, rules_of
from engine.evaluation.inspecting.states import state_of
from engine.evaluation.rule_book.rule_messages import change_messages, condition_messages
from engine.evaluation.rules import rule_as_sent
from engine.evaluation.wire.events import Done, Refused, evaluate_batch_body
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.contract.requests.operations import Operation, versions
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from rule_detector_client import AsyncClient, Client

BOUNDS = ("scopes", "detectors", "expires_ms", "events_per_s")

_ACTING = ("timed", "every_secs", "every_by")


class FakeService:
    """Detectors of the engine by id, their names, and the requests that were made."""

    def __init__(self) -> None:
        self.detectors: dict[str, Detector] = {}
        self.names: dict[str, str] = {}
        self.relations: dict[str, dict[str, list[Any]]] = {}
        self.tokens: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self._messages: list[Entry] = []
        """The messages of the answer that is being made."""

    def create(self, name: str) -> str:
        """Create a detector and return its id."""
        detector_id = f"{len(self.names) + 1:032x}"
        self.names[detector_id], self.detectors[detector_id] = name, Detector()
        self.relations[detector_id] = {}
        return detector_id

    def client(self) -> Client:
        """Return a client of this service."""
        return Client("http://s", "t", transport=httpx.MockTransport(self))

    def async_client(self) -> AsyncClient:
        """Return another client of this service."""
        return AsyncClient("http://s", "t", transport=httpx.MockTransport(self))

    def put_in_place(self, patch: pytest.MonkeyPatch) -> None:
        """Have all commands call this service."""
        options = import_module("api.cli.options.service_options")
        patch.setattr(options, "Client", lambda _url, _token, **_: self.client())
        delivering = import_module("api.cli.delivering.command")
        patch.setattr(delivering, "AsyncClient", lambda _url, _token, **_: self.async_client())

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        self._messages = []
        try:
            result = self._result(request)
        except Refusal as refusal:
            errors = [{"code": entry.code, "message": entry.message} for entry in refusal.entries]
            return httpx.Response(
                400, json={"success": False, "errors": errors, "messages": [], "result": {}}
            )
        messages = [{"code": entry.code, "message": entry.message} for entry in self._messages]
        return httpx.Response(
            200, json={"success": True, "errors": [], "messages": messages, "result": result}
        )

    def _result(self, request: httpx.Request) -> Any:
        is_json = request.headers.get("Content-Type", "").startswith("application/json")
        body = json.loads(request.content) if request.content and is_json else {}
        match request.method, request.url.raw_path.decode().partition("?")[0].split("/")[2:]:
            case "GET", ["changes"]:
                after = int(request.url.params["after"])
                page = [one for one in self.changes if one["seq"] > after]
                return {"changes": page, "next": page[-1]["seq"] if page else after}
            case "POST", ["conditions", "parse"]:
                return json.loads(parse_condition(request.content, DEFAULT_LIMITS)[0])
            case "GET", ["tokens"]:
                return {"tokens": self.tokens}
            case "POST", ["token" | "tokens"]:
                token = {"id": f"{len(self.tokens):032x}", "hint": "cret", "name": body.get("name", "")}
                bounds = {name: body.get(name) for name in BOUNDS}
                self.tokens.append({**token, "created_ms": 1_709_542_800_000, "used_ms": None, **bounds})
                return {"id": token["id"], "token": "rd_secret", "hint": "cret"}
            case "DELETE", ["token", one]:
                self.tokens = [token for token in self.tokens if token["id"] != one]
                return {"id": one}
            case "GET", ["detectors"]:
                return [{"id": one, "name": name} for one, name in self.names.items()]
            case "POST", ["detectors"]:
                return {"id": self.create(body["name"])}
            case "POST", ["detectors", one, "fork"]:
                fork_id = self.create(body["name"])
                source = self.detectors[one]
                self.detectors[fork_id] = Detector.load(source.dump(), Detector.STATE_VERSION)
                return {"id": fork_id}
            case "DELETE", ["detectors", one]:
                del self.names[one], self.detectors[one]
                return {"id": one}
            case "GET", ["detectors", one, "rules"]:
                page = read_query(RulesQuery, request.url.query)
                with_source = page.source == "true"
                most, name = page.limit or PAGE_MAX * with_source, page.name or None
                asked = RulesAsked(page.after or 0, most, with_source, name)
                listed = rules_of(self.detectors[one], one, msgspec.json.encode(asked))
                return json.loads(listed.result)
            case "GET", ["detectors", one, "rules", rule_id]:
                rule = self.detectors[one].rule(rule_id)
                text = canonical(rule.condition)
                return {**self._rule(one, rule_id), "text": text, "source": rule.source or text}
            case "GET", ["detectors", one, "state"]:

                async def call(operation: Operation) -> Done:
                    return state_of(self.detectors[one], operation.payload)

                shown = asyncio.run(state_view(call, read_query(StateQuery, request.url.query)))
                return json.loads(shown.body)["result"]
            case "POST", ["detectors", one, "rules"]:
                shadow, draft_of = body.get("shadow", False), body.get("draftOf")
                given = (body["name"], body["condition"], body["notify"])
                said = {name: body[name] for name in ("description", "labels", *_ACTING) if name in body}
                rule_id = self.detectors[one].add_rule(*given, shadow=shadow, draft_of=draft_of, **said)
                self._messages = condition_messages(self.detectors[one].rule(rule_id).condition)
                return {"id": rule_id}
            case method, ["detectors", one, "relations", *names]:
                return self._relation(method, self.relations[one], names, request)
            case "PUT", ["detectors", one, "rules"]:
                return self._applied(one, put_rules_operation(request.content, DEFAULT_LIMITS))
            case "GET", ["detectors", one, "rules", rule_id, "versions"]:
                return self._applied(one, versions(rule_id))
            case "GET", ["detectors", one, "rules", rule_id, "comparison"]:
                after = request.url.params.get("after")
                answer = comparison_of(self.detectors[one], rule_id, None if after is None else int(after))
                return json.loads(answer.result)
            case "POST", ["detectors", one, "rules", rule_id, "promote"]:
                return self._rule(one, self.detectors[one].promote(rule_id).id)
            case "PATCH", ["detectors", one, "rules", rule_id]:
                before = self.detectors[one].rule(rule_id)
                changed = self.detectors[one].change_rule(rule_id, **body)
                self._messages = change_messages(changed, before, condition_given="condition" in body)
                return self._rule(one, rule_id)
            case "DELETE", ["detectors", one, "rules", rule_id]:
                self.detectors[one].remove_rule(rule_id)
                return {"id": rule_id}
            case "POST", ["detectors", one, "evaluate", "batch"]:
                detailed = request.url.params.get("details") == "true"
                answer, _ = evaluate_batch_body(self.detectors[one], request.content, detailed=detailed)
                if isinstance(answer, Refused):
                    raise Refusal(*answer.entries)
                return json.loads(answer.result)
            case "POST", ["detectors", one, "explain"]:
                return json.loads(explain_body(self.detectors[one], request.content).result)
        raise AssertionError(request)

    @staticmethod
    def _relation(
        method: str, relations: dict[str, list[Any]], names: list[str], request: httpx.Request
    ) -> dict[str, Any]:
        def shown(name: str) -> dict[str, Any]:
            tuples = relations[name]
            arity = len(tuples[0]) if tuples else None
            return {"name": name, "tuples": len(tuples), "arity": arity, "changed_ms": 0}

        match method, [unquote(name) for name in names]:
            case "GET", []:
                return {"relations": [shown(name) for name in sorted(relations)]}
            case "GET", [name]:
                start = int(request.url.params.get("after", 0))
                stop = start + min(int(request.url.params["limit"]), 7)
                following = None if stop >= len(relations[name]) else stop
                return {"tuples": relations[name][start:stop], "next": following}
            case "PUT", [name]:
                given = [json.loads(line) for line in request.content.splitlines()]
                relations[name] = [each if isinstance(each, list) else [each] for each in given]
                return shown(name)
            case "DELETE", [name]:
                del relations[name]
                return {"name": name}
        raise AssertionError(request)

    def _applied(self, detector_id: str, operation: Operation) -> Any:
        answers = IdempotencyCache(retention_us=0, bytes_max=0)
        done = apply(self.detectors[detector_id], detector_id, answers, operation, 1_709_542_800_000_000)
        if isinstance(done.answer, Refused):
            raise Refusal(*done.answer.entries)
        self._messages = [Entry(**one) for one in json.loads(done.answer.messages)]
        return json.loads(done.answer.result)

    def _rule(self, detector_id: str, rule_id: str) -> dict[str, Any]:
        return rule_as_sent(self.detectors[detector_id].rule(rule_id), detector_id)
