"""The numbers of addresses and networks tell exactly which addresses lie in which networks."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.validation.networks import address_number, is_network, network_of, shift_of
from tests.reference_values import address, lies_in, network

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
