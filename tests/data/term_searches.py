"""Plain search for the rules that compare numbers, addresses and times of day."""

from datetime import datetime
from decimal import Decimal
from ipaddress import ip_address, ip_network
from zoneinfo import ZoneInfo

from tests.data.recorded import MINUTE_US, PAIR, Event, Search, asks_for_changes, earlier


def in_panes(events: list[Event], now: int, window_us: int, *same: str) -> list[Event]:
    """Yield the events equal to `now` in `same` in a window, whose oldest 256th counts as a whole."""
    pane_us = -(-window_us // 256)
    oldest = (events[now]["TIME"] - window_us) // pane_us
    return [
        event
        for _, event in earlier(events, now, window_us + pane_us, *same)
        if event["TIME"] // pane_us >= oldest
    ]


def inside(text: object, *networks: str) -> bool:
    """Return whether a text is an address in one of these networks."""
    try:
        return any(ip_address(str(text)) in ip_network(network) for network in networks)
    except ValueError:
        return False


def leaves(event: Event) -> bool:
    return event["@stream"] == "conn" and not inside(event["id_resp_h"], "10.0.0.0/8")


def most_leave(events: list[Event], now: int) -> bool:
    if not leaves(events[now]):
        return False
    recent = [e for e in in_panes(events, now, 10 * MINUTE_US, "id_orig_h") if e["@stream"] == "conn"]
    return len(recent) >= 20 and sum(map(leaves, recent)) > 0.8 * len(recent)


def steady(events: list[Event], now: int) -> bool:
    if events[now]["@stream"] != "conn":
        return False
    long, short = (
        sum(e["@stream"] == "conn" for e in in_panes(events, now, minutes * MINUTE_US, *PAIR))
        for minutes in (10, 1)
    )
    return long >= 30 and 0.05 * long < short < 0.2 * long


def names_missing(events: list[Event], now: int) -> bool:
    if events[now].get("rcode_name") != "NXDOMAIN":
        return False
    asked = [e for e in in_panes(events, now, 5 * MINUTE_US, "id_orig_h") if e["@stream"] == "dns"]
    missing = [e for e in asked if e.get("rcode_name") == "NXDOMAIN"]
    return len(asked) >= 3 and len(missing) > 0.2 * len(asked)


def leads_inside(events: list[Event], now: int) -> bool:
    return any(inside(answer, "10.0.0.0/8") for answer in events[now].get("answers", []))


def leads_both_ways(events: list[Event], now: int) -> bool:
    outside = ("13.0.0.0/8", "72.21.0.0/16")
    return leads_inside(events, now) and any(inside(each, *outside) for each in events[now]["answers"])


def packed(events: list[Event], now: int) -> bool:
    event = events[now]
    return event["@stream"] == "pe" and any(name[:3] == "UPX" for name in event["section_names"])


def share_for_pipes(events: list[Event], now: int) -> bool:
    path = events[now].get("path", "")
    return path.lower().startswith("\\\\newyork") and path[-5:] == "\\IPC$"


def sends_much(events: list[Event], now: int) -> bool:
    sent, got = events[now].get("orig_bytes"), events[now].get("resp_bytes")
    return sent is not None and got is not None and sent > 100 * got and sent >= 500_000


def nine_years(events: list[Event], now: int) -> bool:
    event = events[now]
    years = Decimal(9 * 365 * 86_400)
    return event["@stream"] == "x509" and (
        event["certificate_not_valid_after"] - event["certificate_not_valid_before"] >= years
    )


def largest_answer(events: list[Event], now: int) -> bool:
    event = events[now]
    if event["@stream"] != "conn" or event.get("resp_bytes", 0) <= 10_000:
        return False
    before = [
        e["resp_bytes"]
        for at, e in earlier(events, now, 10**15, "id_orig_h")
        if at < now and "resp_bytes" in e
    ]
    return bool(before) and event["resp_bytes"] > 3 * max(before)


def third_share(events: list[Event], now: int) -> bool:
    found = 0
    for _, event in earlier(events, now, 10**15):
        if event["@stream"] == "kerberos":
            break
        found += event["@stream"] == "conn" and event["id_resp_p"] == 445
    return events[now]["@stream"] == "conn" and events[now]["id_resp_p"] == 445 and found == 3


def logon_at(first: int, last: int, zone: str) -> Search:
    """Return whether `now` is a logon from one hour on, until before another one of the next day."""

    def search(events: list[Event], now: int) -> bool:
        hour = datetime.fromtimestamp(events[now]["TIME"] / 1_000_000, ZoneInfo(zone)).hour
        return events[now]["EventID"] == 4624 and (hour >= first or hour < last)

    return search


def private_logon(events: list[Event], now: int) -> bool:
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
    return events[now]["EventID"] == 4624 and inside(events[now].get("IpAddress"), *private)


def leaves_private(events: list[Event], now: int) -> bool:
    to = events[now].get("DestAddress")
    own = ("172.16.0.0/12", "169.254.0.0/16", "fe80::/10", "::1")
    return events[now]["EventID"] == 5156 and to is not None and not inside(to, *own)


def policies_read(events: list[Event], now: int) -> bool:
    event = events[now]
    return event.get("ShareName", "")[:4] == "\\\\*\\" and event.get(
        "RelativeTargetName", ""
    ).lower().endswith("\\gpt.ini")


def request_after_logon(events: list[Event], now: int) -> bool:
    return asks_for_changes(events[now]) and any(
        event["EventID"] == 4624 and events[now]["TIME"] - event["TIME"] >= 2_000_000
        for _, event in earlier(events, now, 5 * MINUTE_US, "Hostname")
    )


def one_kind(events: list[Event], now: int) -> bool:
    if events[now]["EventID"] != 4103:
        return False
    recent = in_panes(events, now, 2_000_000, "Hostname")
    same = sum(event["EventID"] == 4103 for event in recent)
    return len(recent) >= 50 and same > 0.5 * len(recent)
