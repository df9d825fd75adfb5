"""The networks of a relation have the addresses of those that are in it, whatever came and went."""

from hypothesis import example, given, strategies

from engine.evaluation.facts.relations import Networks
from engine.evaluation.relations.stored import StoredNetworks
from engine.language.validation.networks import address_number, network_of

TEXTS = [
    "10.0.0.0/8",
    "10.1.2.3/8",
    "10.1.0.0/16",
    "11.1.0.0/16",
    "10.1.2.3",
    "a00::/8",
    "::/0",
    "::1",
    "office",
]
ROWS = [*((text,) for text in TEXTS), (10,), (True,), ("10.0.0.0/8", "10.1.0.0/16"), ()]
ADDRESSES = ["10.9.9.9", "10.1.9.9", "10.1.2.3", "11.1.9.9", "0.0.0.0", "a01::", "::1"]


@given(strategies.lists(strategies.tuples(strategies.booleans(), strategies.sampled_from(ROWS)), max_size=20))
@example([(False, row) for row in ROWS])
# One network twice: it goes with the second of them.
@example([(False, ("10.0.0.0/8",)), (True, ("10.1.2.3/8",))] * 2)
def test_they_have_what_those_in_it_have(changes: list[tuple[bool, tuple[object, ...]]]) -> None:
    stored, rows = StoredNetworks(), list[tuple[object, ...]]()
    for is_copied, row in changes:
        if is_copied:
            stored = stored.copy()
        if row in rows:
            rows.remove(row)
            stored.remove(row)
        else:
            rows.append(row)
            stored.add(row)
        texts = [str(row[0]) for row in rows if len(row) == 1 and row[0] in TEXTS]
        for text in ADDRESSES:
            number = address_number(text)
            assert number is not None
            assert stored.have(number) == Networks(texts).have(number), (rows, text)
        assert len(stored) == len({network_of(text) for text in texts} - {None})
