"""Which events of a recording each rule in this folder must fire at, found by plain search.

Written from the English meaning of the rules: for each event it looks through the events before it. It shares
no code with the engine, knows nothing of its language, and takes its time.

    python -m tests.data.find_expected dcsync windows-dcsync.ndjson.gz

prints a JSON object from rule names to the positions of events, counted from 0.
"""

import json
import sys
from pathlib import Path

from tests.data import term_searches as of_terms
from tests.data.recorded import (
    ALL_CHANGES,
    MINUTE_US,
    PAIR,
    SOME_CHANGES,
    Event,
    Search,
    asks_for_changes,
    earlier,
    read,
)

# The attack on the directory.


def person(name: object) -> bool:
    """Whether an account is no machine: it has a name, and the name does not end in a dollar sign."""
    return isinstance(name, str) and name != "" and not name.endswith("$")


def network_logon(event: Event) -> bool:
    return event["EventID"] == 4624 and event.get("LogonType") == "3"


def request_by_person(events: list[Event], now: int) -> bool:
    return asks_for_changes(events[now]) and person(events[now].get("SubjectUserName"))


def request_in_session_of_network_logon(events: list[Event], now: int) -> bool:
    """The join that is meant: logon and request name the same account and the same session of one host.

    The rules say it in two other ways, since no field holds the account in both events. On this
    recording all three must come to the same, which is what this search establishes.
    """
    request = events[now]
    return request_by_person(events, now) and any(
        network_logon(event)
        and event["TargetLogonId"] == request["SubjectLogonId"]
        and event["TargetUserName"] == request["SubjectUserName"]
        for _, event in earlier(events, now, 5 * MINUTE_US, "Hostname")
    )


def request_by_pgustavo(events: list[Event], now: int) -> bool:
    name = events[now].get("SubjectUserName")
    return name == "pgustavo" and request_in_session_of_network_logon(events, now)


def all_secrets_after_changes(events: list[Event], now: int) -> bool:
    return ALL_CHANGES in events[now].get("Properties", "") and any(
        SOME_CHANGES in event.get("Properties", "")
        for _, event in earlier(events, now, MINUTE_US, "Hostname", "SubjectLogonId")
    )


def privileged_session_with_request(events: list[Event], now: int) -> bool:
    session = ("Hostname", "SubjectLogonId")
    if any(name not in events[now] for name in session):
        return False
    asked = any(
        SOME_CHANGES in event.get("Properties", "") or ALL_CHANGES in event.get("Properties", "")
        for _, event in earlier(events, now, 10**15, *session)
    )
    for _, event in earlier(events, now, 5 * MINUTE_US, *session):
        if event["EventID"] == 4672 and person(event.get("SubjectUserName")):
            return asked
        if event["EventID"] == 4634:
            return False
    return False


def request_after_remote_desktop(events: list[Event], now: int) -> bool:
    return asks_for_changes(events[now]) and any(
        event["EventID"] == 4624 and event.get("LogonType") == "10"
        for _, event in earlier(events, now, 5 * MINUTE_US, "Hostname")
    )


def request_without_network_logon(events: list[Event], now: int) -> bool:
    return request_by_person(events, now) and not any(
        network_logon(event) and person(event.get("TargetUserName"))
        for _, event in earlier(events, now, 5 * MINUTE_US, "Hostname")
    )


def request_and_logon_of_the_same_subject_session(events: list[Event], now: int) -> bool:
    return asks_for_changes(events[now]) and any(
        event["EventID"] == 4624 for _, event in earlier(events, now, 5 * MINUTE_US, "SubjectLogonId")
    )


# The attack seen from the network.


def alternating_contacts(events: list[Event], now: int, kinds: list[str]) -> bool:
    """Whether `now` is of the first kind and, going back in the same pair and port, the other kinds follow.

    Each is at most 30 seconds older than the one after it.
    """
    return events[now]["@stream"] == kinds[0] and (
        len(kinds) == 1
        or any(
            alternating_contacts(events, at, kinds[1:]) for at, _ in earlier(events, now, 30_000_000, *PAIR)
        )
    )


def beaconing(events: list[Event], now: int) -> bool:
    return alternating_contacts(events, now, ["conn", "ssl", "conn", "ssl", "conn"])


def beaconing_for_three_minutes(events: list[Event], now: int) -> bool:
    if not alternating_contacts(events, now, ["conn", "ssl", "conn"]):
        return False
    for _, event in earlier(events, now, 10**15, *PAIR):
        if event["@stream"] not in ("conn", "ssl", "notice"):
            return False
        if events[now]["TIME"] - event["TIME"] >= 3 * MINUTE_US:
            return True
    return False


def at_workstation(event: Event, *ports: int) -> bool:
    return (
        event["@stream"] == "conn"
        and event["id_resp_h"].split(".")[:3] == ["10", "0", "1"]
        and event["id_resp_p"] in ports
    )


def remote_logon(event: Event) -> bool:
    return (
        event["@stream"] == "kerberos"
        and event.get("request_type") == "TGS"
        and event.get("success") is True
        and event["service"].split("/")[0] in ("HTTP", "cifs", "host")
        and "/" in event["service"]
    )


def lateral_movement(events: list[Event], now: int) -> bool:
    if not at_workstation(events[now], 135, 445, 5985, 5986):
        return False
    before = [event for _, event in earlier(events, now, 15 * MINUTE_US, "id_orig_h")]
    return (
        any(remote_logon(event) for event in before)
        and any(at_workstation(event, 5985, 5986) for event in before)
        and any(at_workstation(event, 445) for event in before)
    )


def fetches_program(event: Event) -> bool:
    return (
        event["@stream"] == "http"
        and event["method"] == "GET"
        and "application/x-dosexec" in event.get("resp_mime_types", [])
    )


def program_fetched(events: list[Event], now: int) -> bool:
    return fetches_program(events[now]) and events[now]["status_code"] // 100 == 2


def archive_sent_out(events: list[Event], now: int) -> bool:
    event = events[now]
    return (
        event["@stream"] == "http"
        and event["method"] == "PUT"
        and event["status_code"] // 100 == 2
        and "application/x-7z-compressed" in event.get("orig_mime_types", [])
    )


def file_share_after_fetch(events: list[Event], now: int) -> bool:
    if events[now]["@stream"] != "conn" or events[now]["id_resp_p"] != 445:
        return False
    for _, event in earlier(events, now, 10 * MINUTE_US, "id_orig_h"):
        if fetches_program(event):
            return True
        if event.get("error_msg") == "KDC_ERR_PREAUTH_REQUIRED":
            return False
    return False


def ssh(events: list[Event], now: int) -> bool:
    return events[now]["@stream"] == "conn" and events[now]["id_resp_p"] == 22


def fetch_without_ticket(events: list[Event], now: int) -> bool:
    return "application/x-dosexec" in events[now].get("resp_mime_types", []) and not any(
        event["@stream"] == "kerberos" for _, event in earlier(events, now, 10**15, "id_orig_h")
    )


SEARCHES: dict[str, tuple[str, dict[str, Search]]] = {
    "dcsync": (
        "@timestamp",
        {
            "replication asked for by an account that is no machine": request_by_person,
            "replication asked for in a session that began with a network logon": (
                request_in_session_of_network_logon
            ),
            "replication asked for by pgustavo after its network logon": request_by_pgustavo,
            "all secrets asked for after ordinary changes": all_secrets_after_changes,
            "privileged session of a person that asked for replication": privileged_session_with_request,
            "logon at night": of_terms.logon_at(22, 6, "UTC"),
            "logon from a private network": of_terms.private_logon,
            "connection that leaves the private networks": of_terms.leaves_private,
            "policies read from the share of a controller": of_terms.policies_read,
            "replication asked for at least two seconds after a logon": of_terms.request_after_logon,
            "most of what a host says is one kind of line": of_terms.one_kind,
            "logon at night in New York": of_terms.logon_at(22, 0, "America/New_York"),
            "replication asked for after a logon by remote desktop": request_after_remote_desktop,
            "replication asked for without a network logon before": request_without_network_logon,
            "replication and logon joined by the wrong field": request_and_logon_of_the_same_subject_session,
        },
    ),
    "apt29": (
        "ts",
        {
            "beaconing over TLS": beaconing,
            "beaconing for three minutes": beaconing_for_three_minutes,
            "lateral movement": lateral_movement,
            "program fetched over HTTP": program_fetched,
            "archive sent out over HTTP": archive_sent_out,
            "file share opened after a program was fetched": file_share_after_fetch,
            "most connections of a host leave its networks": of_terms.most_leave,
            "beaconing at a steady pace": of_terms.steady,
            "more than a fifth of the names do not exist": of_terms.names_missing,
            "name that leads into our networks": of_terms.leads_inside,
            "packed program": of_terms.packed,
            "share for pipes opened": of_terms.share_for_pipes,
            "sends a hundred times what it gets": of_terms.sends_much,
            "certificate for nine years": of_terms.nine_years,
            "largest answer of a host so far": of_terms.largest_answer,
            "third connection to a share since the last ticket": of_terms.third_share,
            "remote shell over SSH": ssh,
            "program fetched by a host that never asked for a ticket": fetch_without_ticket,
            "name that leads into our networks and out of them": of_terms.leads_both_ways,
        },
    ),
}


def expected(name: str, path: Path) -> dict[str, list[int]]:
    """For each rule of the recording `name`, the positions of the events that it must fire at."""
    time_field, searches = SEARCHES[name]
    events = read(path, time_field)
    return {
        rule: [now for now in range(len(events)) if search(events, now)] for rule, search in searches.items()
    }


if __name__ == "__main__":
    json.dump(expected(sys.argv[1], Path(sys.argv[2])), sys.stdout, indent=2)
    sys.stdout.write("\n")
