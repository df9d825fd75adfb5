"""Rules that keep times and records by key, in windows of a few milliseconds."""

TIMES = (
    "per k once within 50ms a == 1",
    "t == 1 and per k once within 20ms not a == 1",
    "per k (not b == 1 since a == 1)",
    "t == 1 and per k historically for 30ms strong not a == 1",
    "per k per j historically for 20ms a == 1",
)
RECORDS = (
    "per k count(a == 1) within 50ms >= 3",
    "t == 1 and per k count(b == 1) > 13",
    "per k distinct(j) within 40ms > 1",
    "t == 1 and per k distinct(t) within 90ms > 12",
    "per k sum(a) within 60ms > 1",
    "per k per j avg(t where a == 1) within 300ms > 1",
    "per k once within [30ms, 33ms] a == 1",
    "per k max(t) within 300ms > 1",
    "per k min(a where b == 1) within 60ms < 1",
    "per k last(j) == prev(j)",
    "per k last(n) == prev(n)",
)
