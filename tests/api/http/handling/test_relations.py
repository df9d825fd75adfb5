"""Relations over HTTP: what they hold, how bodies are read, and what is refused."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.caller import Caller, Said, sound

NDJSON = {"Content-Type": "application/x-ndjson"}
CSV = {"Content-Type": "text/csv"}
PAIRS = [["ada", 1], ["bob", 2.5], ["eve", True]]


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def put(caller: Caller, path: str, body: bytes, kind: dict[str, str], size: int = 0) -> Said:
    headers = {"Authorization": f"Bearer {caller.token}", **kind}
    content: Any = in_pieces(body, size) if size else body
    return sound(await caller.plain("PUT", path, content=content, headers=headers))


async def tuples_of(caller: Caller, path: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    after = ""
    while after is not None:
        page = (await caller("GET", f"{path}?limit=2" + (f"&after={after}" if after else ""))).result
        assert len(page["tuples"]) <= 2
        found += page["tuples"]
        after = page["next"]
    return sorted(found, key=repr)


@pytest.fixture
async def path(caller: Caller) -> str:
    return f"/api/detectors/{await caller.detector()}/relations"


async def test_a_relation_is_put_changed_shown_and_deleted(caller: Caller, path: str) -> None:
    assert (await caller("GET", path)).result == {"relations": []}
    one = f"{path}/owns"
    shown = (await caller("PUT", one, {"tuples": [*PAIRS, PAIRS[0]]})).result
    assert {**shown, "changed_ms": 0} == {"name": "owns", "tuples": 3, "arity": 2, "changed_ms": 0}
    assert (await caller("GET", path)).result == {"relations": [shown]}
    assert await tuples_of(caller, one) == PAIRS
    change = {"remove": [["ada", 1], ["bob", 2.5], ["no", 1]], "add": [["bob", 2.5], ["zoe", 0]]}
    changed = (await caller("PATCH", one, change)).result
    assert (changed["tuples"], changed["changed_ms"] >= shown["changed_ms"]) == (3, True)
    assert await tuples_of(caller, one) == [["bob", 2.5], ["eve", True], ["zoe", 0]]
    assert (await caller("DELETE", one)).result == {"name": "owns"}
    for method, document in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        refused = await caller(method, one, document)
        assert (refused.status, refused.codes) == (404, [1203])


@pytest.mark.parametrize(
    ("escaped", "name"), [("a%2Fb", "a/b"), ("a%252Fb", "a%2Fb"), ("%24x.y", "$x.y"), ("%C3%A9%20%3F", "é ?")]
)
async def test_names_are_taken_literally(caller: Caller, path: str, escaped: str, name: str) -> None:
    assert (await caller("PUT", f"{path}/{escaped}", {"tuples": ["x"]})).result["name"] == name
    assert [one["name"] for one in (await caller("GET", path)).result["relations"]] == [name]
    assert (await caller("GET", f"{path}/{escaped}")).result["tuples"] == [["x"]]
    assert (await caller("DELETE", f"{path}/{escaped}")).result == {"name": name}


async def test_names_that_are_none_lead_nowhere(caller: Caller, path: str) -> None:
    for name in ("", "%FF", "a/b"):
        refused = await caller("PUT", f"{path}/{name}", {"tuples": []})
        assert (refused.status, refused.codes) == (404, [1004]), name


BODIES: dict[str, tuple[dict[str, str], bytes, str]] = {
    "json": ({}, json.dumps({"tuples": PAIRS}).encode(), ""),
    "ndjson": (NDJSON, b'["ada",1]\r\n\n ["bob", 2.5]\n["eve",true]', ""),
    "csv": (CSV, b'ada,1\r\n"bob",2.5\n\n', "?types=string,number"),
    "header": (CSV, b"\xef\xbb\xbfuser,n\nada,1\nbob,2.5\n", "?types=string,number&header=true"),
}


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("kind", BODIES)
async def test_each_form_is_read_however_it_arrives(caller: Caller, path: str, kind: str, size: int) -> None:
    headers, body, query = BODIES[kind]
    answered = await put(caller, f"{path}/owns{query}", body, headers, size)
    expected = PAIRS if kind in ("json", "ndjson") else PAIRS[:2]
    assert answered.result["tuples"] == len(expected)
    assert await tuples_of(caller, f"{path}/owns") == expected


async def test_cells_of_csv_are_strings_with_all_that_quotes_keep(caller: Caller, path: str) -> None:
    await put(caller, f"{path}/owns", b'1,"a,""b""\nc"\n"2\n\n",\xc3\xa9\n', CSV, 3)
    assert await tuples_of(caller, f"{path}/owns") == [["1", 'a,"b"\nc'], ["2\n\n", "é"]]


LONG = [[f"user {index}", 'a, "quoted\\" ] text', index] for index in range(6_000)]
"""More than two parts of a body, with all that could be taken for the end of a tuple."""


@pytest.mark.parametrize("size", [0, 1_000, 65_537])
@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
async def test_long_bodies_are_read_in_parts(caller: Caller, path: str, form: str, size: int) -> None:
    one = f"{path}/owns"
    match form:
        case "json":
            answered = await put(caller, one, json.dumps({"tuples": LONG}).encode(), {}, size)
        case "ndjson":
            lines = b"".join(json.dumps(one).encode() + b"\n" for one in LONG)
            answered = await put(caller, one, lines, NDJSON, size)
        case _:
            rows = b"".join(b'"user\n""%d""",%d\n' % (index, index) for index in range(12_000))
            answered = await put(caller, one, rows, CSV, size)
    assert answered.result["tuples"] == (12_000 if form == "csv" else 6_000)
    page = (await caller("GET", f"{one}?limit=1000")).result
    assert len(page["tuples"]) == 1000
    if form != "csv":
        assert all(values in LONG for values in page["tuples"][:5])


async def test_a_quote_inside_a_cell_is_a_character_in_a_long_body_too(caller: Caller, path: str) -> None:
    rows = b"".join(b'5" disk %d,"a\n""b"\r\n' % index for index in range(6_000))
    answered = await put(caller, f"{path}/owns", b'6" disk,x\r' + rows, CSV)
    assert answered.result["tuples"] == 6_001
    first = (await caller("GET", f"{path}/owns?limit=2")).result["tuples"]
    assert first == [['6" disk', "x"], ['5" disk 0', 'a\n"b']]


_SHORT = "expected a tuple of 2, got one of 1"
_SCALAR = "expected a string, a number or a boolean"
DEFECTS: list[tuple[dict[str, str], str, bytes, str]] = [
    ({}, "", b"", "1000 the body is not JSON: input data was truncated"),
    ({}, "", b'{"tuples": [[1,2],]}', "1000 the body is not JSON: trailing comma in array (byte 18)"),
    ({}, "", b"[]", "1001 body: expected an object, got an array"),
    ({}, "", b"{}", "1001 tuples: missing"),
    ({}, "", b'{"tuples": [], "name": 1}', "1001 name: unknown member"),
    ({}, "", b'{"tuples": {}}', "1001 tuples: expected an array, got an object"),
    ({}, "", b'{"tuples": [[1, "a"], [2]]}', f"1001 tuples[1]: {_SHORT}"),
    ({}, "", b'{"tuples": [[1], 2, [null]]}', f"1001 tuples[2][0]: {_SCALAR}, got null"),
    (NDJSON, "", b'["a"]\n\n{"a": 1}\n', f"1001 line 3: {_SCALAR}, or an array of them, got an object"),
    (NDJSON, "", b'["a","b"]\n["b"]\n', f"1001 line 2: {_SHORT}"),
    (NDJSON, "", b'["a"]\n["b"', "1000 line 2: it is not JSON: input data was truncated"),
    (NDJSON, "", b'["a"] ["b"]\n', "1000 line 1: it is not JSON: trailing characters (byte 7)"),
    (CSV, "", b"a,b\nc\n", f"1001 line 2: {_SHORT}"),
    (CSV, "", b'a,"b\n', "1001 line 1: unexpected end of data"),
    (CSV, "", b"a\n\xff\n", "1000 line 2: it is not valid UTF-8"),
    (CSV, "?types=number", b"1\nx\n", "1001 line 2: expected a number, got `x`"),
    (CSV, "?types=number", b"1" * 4_001, "1001 line 1: expected a number of at most 4000 digits"),
    (CSV, "?types=number", b"1" * 5_000, "1001 line 1: expected a number of at most 4000 digits"),
    (CSV, "?types=boolean", b"True\n", "1001 line 1: expected true or false, got `True`"),
    (CSV, "?types=string", b"a,b\n", "1001 line 1: expected 1 cells, as types has, got 2"),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=[one[-1] for one in DEFECTS])
async def test_a_defect_is_named_by_its_place(
    caller: Caller, path: str, defect: tuple[dict[str, str], str, bytes, str]
) -> None:
    kind, query, body, said = defect
    before = (await caller("PUT", f"{path}/owns", {"tuples": ["x"]})).result
    refused = await put(caller, f"{path}/owns{query}", body, kind)
    assert [f"{refused.codes[0]} {refused.texts[0]}"] == [said]
    assert (await caller("GET", path)).result == {"relations": [before]}


async def test_a_defect_in_a_later_part_is_named_by_its_place(caller: Caller, path: str) -> None:
    lines = [json.dumps(one).encode() for one in LONG]
    lines[5_000] = b'["short"]'
    refused = await put(caller, f"{path}/owns", b"\n".join(lines), NDJSON)
    assert refused.texts == ["line 5001: expected a tuple of 3, got one of 1"]
    refused = await put(caller, f"{path}/owns", b'{"tuples":[' + b",".join(lines) + b"]}", {})
    assert refused.texts == ["tuples[5000]: expected a tuple of 3, got one of 1"]
    lines[5_000] = b'["a", [1], 2]'
    refused = await put(caller, f"{path}/owns", b'{"tuples":[' + b",".join(lines) + b"]}", {})
    assert refused.codes == [1001]
    assert refused.texts[0].startswith("tuples[5000]: expected a string, a number, a boolean, or an array")
    whole = b'{"tuples":[' + json.dumps(LONG).encode()[1:-1]
    for ending, said in ((b",", "input data was truncated"), (b",]}", "trailing comma in array")):
        refused = await put(caller, f"{path}/owns", whole + ending, {})
        assert refused.texts == [f"the body is not JSON: {said}"]
    assert (await caller("GET", path)).result == {"relations": []}


async def test_a_long_json_body_has_to_begin_with_its_tuples(caller: Caller, path: str) -> None:
    body = json.dumps({"more": 1, "tuples": LONG}).encode()
    refused = await put(caller, f"{path}/owns", body, {})
    assert refused.texts == ['body: one of more than 65536 bytes has to begin with {"tuples": [']


@pytest.mark.parametrize("headers", [{}, NDJSON, CSV])
async def test_no_tuple_is_longer_than_a_part(caller: Caller, path: str, headers: dict[str, str]) -> None:
    long = b'"' + b"x" * 70_000 + b'"'
    body = long if headers else b'{"tuples": [' + long + b"]}"
    refused = await put(caller, f"{path}/owns", body, headers, 10_000)
    assert refused.codes == [1001]
    assert "65536 bytes" in refused.texts[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"add": [["a"], [1, 2]]}, "add[1]: expected a tuple of 1, got one of 2"),
        ({"add": {}}, "add: expected an array, got an object"),
        ({"remove": [[[]]]}, "remove[0][0]: expected a string, a number or a boolean, got an array"),
        ({"put": []}, "put: unknown member"),
        ({"add": None}, "add: expected an array, got null"),
    ],
)
async def test_a_change_of_a_wrong_shape_changes_nothing(
    caller: Caller, path: str, body: dict[str, object], said: str
) -> None:
    before = (await caller("PUT", f"{path}/owns", {"tuples": ["x"]})).result
    refused = await caller("PATCH", f"{path}/owns", body)
    assert (refused.status, refused.texts) == (400, [said])
    assert (await caller("GET", path)).result == {"relations": [before]}
