"""JSON texts to values: what `json` reads, with the depth, and what is refused at which offset."""

import json

import pytest

from engine.language.json.reader import JsonReader, NotJson
from engine.language.limits import DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("true", 0),
        (" false ", 0),
        ("null", 0),
        ("-1.5e3", 0),
        ('"a\\u00e9"', 0),
        ("[]", 1),
        ("{}", 1),
        ("[true, false, null, 0]", 1),
        ('{"a": true, "b": [false, {"c": null}], "d": {}}', 3),
        ("[[], [[]], []]", 3),
        ('{"a": 1, "a": [2]}', 2),
    ],
)
def test_a_value_is_read_as_json_reads_it_with_its_depth(text: str, depth: int) -> None:
    reader = JsonReader(text, DEFAULT_LIMITS)
    value = reader.read()
    assert (json.dumps(value), reader.depth) == (json.dumps(json.loads(text)), depth)


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, "expected a value, got the end of the text"),
        ("1 2", 2, "expected the end of the text, got `2`"),
        ("[1 2]", 3, 'expected "," or "]", got `2`'),
        ('["a" "b"]', 5, 'expected "," or "]", got `"`'),
        ("[1,]", 3, "expected a value, got `]`"),
        ("[,", 1, 'expected a value or "]", got `,`'),
        ("[1", 2, 'expected "," or "]", got the end of the text'),
        ('{"a": 1 "b": 2}', 8, 'expected "," or "}", got `"`'),
        ('{"a": 1, 2: 3}', 9, "expected the name of a member, in double quotes, got `2`"),
        ("{a: 1}", 1, "expected the name of a member, in double quotes, got `a`"),
        ('{"a" 1}', 5, 'expected ":", got `1`'),
        ('{"a": }', 6, "expected a value, got `}`"),
        ('{"a": True}', 6, "expected a value, got `True`"),
        ("[1}", 2, 'expected "," or "]", got `}`'),
        ('["a\\n\\ud800"]', 5, "expected a whole surrogate pair, got only `\\ud800`"),
        ('["a\ud800"]', 3, "expected a whole surrogate pair, got half of one"),
        ("01", 0, "expected a value, got `01`"),
    ],
)
def test_text_that_is_not_json_is_refused_at_its_offset(text: str, offset: int, expected: str) -> None:
    with pytest.raises(NotJson) as refused:
        JsonReader(text, DEFAULT_LIMITS).read()
    assert (refused.value.offset, refused.value.sentence) == (offset, expected)
