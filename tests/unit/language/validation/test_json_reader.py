"""JSON texts to values: what `json` reads, with the depth, and what is refused at which offset."""

import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.json.reader import JsonReader, NotJson
from engine.language.limits import DEFAULT_LIMITS
from engine.language.validation.networks import address_number, is_network, network_of, shift_of
from tests.reference_values import address, lies_in, network


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


FOURS = st.ip_addresses(v=4).map(str)
SIXES = st.ip_addresses(v=6).flatmap(lambda one: st.sampled_from([str(one), one.exploded.upper()]))
MAPPED = FOURS.map("::ffff:{}".format)
ADDRESSES = st.one_of(FOURS, SIXES, MAPPED)
ODD = st.sampled_from(
    [
        *("", "1.2.3", "1.2.3.04", " 1.2.3.4", "1.2.3.4 ", "1.2.3.256", "1.2.3.4.5", "٣.1.1.1", "1.2.3.4\0"),
        *(
            ":::",
            "1::2::3",
            "::1%lo",
            "1:2:3:4:5:6:7:8:9",
            "::1.2.3",
            "g::",
            "10.0.0.0/8",
            "::ffff:1.2.3.4%e",
        ),
    ]
)
LENGTHS = st.sampled_from(["", "08", "-1", "255.0.0.0", "8 ", "٣"])


@given(st.one_of(ADDRESSES, ODD, st.text("0123456789.:f%/", max_size=12)))
def test_a_text_is_an_address_where_the_reference_says_so(text: str) -> None:
    assert (address_number(text) is None) is (address(text) is None)


@given(
    st.one_of(ADDRESSES, ODD),
    st.one_of(
        st.none(), st.integers(0, 130).map(str), st.sampled_from(["", "08", "-1", "255.0.0.0", "8 ", "٣"])
    ),
    st.lists(ADDRESSES, max_size=3),
    st.integers(0, 127),
)
def test_an_address_lies_in_a_network_where_the_reference_says_so(
    base: str, length: str | None, others: list[str], flipped: int
) -> None:
    text = base if length is None else f"{base}/{length}"
    found = network_of(text)
    assert (found is None) is (network(text) is None)
    assert is_network(text) is (found is not None and "/" in text)
    if found is None:
        return
    assert shift_of(found.key) == found.shift
    near = ipaddress.ip_address(base.partition("/")[0])
    others += [str(near), str(type(near)(int(near) ^ 1 << flipped % near.max_prefixlen))]
    for other in others:
        number, known = address_number(other), address(other)
        assert number is not None
        assert known is not None
        assert (number >> found.shift == found.key) is lies_in(known, [text])


@pytest.mark.parametrize(
    "text", ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0/8", "fe80::1%e/64", "10.0.0.0/8/8", "a"]
)
def test_what_is_no_network_has_no_number(text: str) -> None:
    assert network_of(text) is None
