"""Detectors by name, as a token sees them that is for some only."""

from tests.api.caller import Caller
from tests.api.http.scopes.tokens import with_token


async def test_a_name_means_the_only_detector_of_that_name_that_the_token_sees(caller: Caller) -> None:
    own, same, other = [await caller.detector(name) for name in ("logins", "logins", "shop")]
    bounded = await with_token(caller, detectors=[own])
    everyone = await caller("GET", "/api/detectors/name:logins")
    assert (everyone.status, everyone.codes) == (404, [1200]), "two have that name"
    assert (await bounded("GET", "/api/detectors/name:logins")).result["id"] == own
    assert (await bounded.evaluate("name:logins", {})).result == {"actions": []}
    assert (await caller("GET", f"/api/detectors/{own}/state")).result["events"] == 1
    assert (await caller("GET", f"/api/detectors/{same}/state")).result["events"] == 0
    hidden = await bounded("GET", "/api/detectors/name:shop")
    missing = await bounded("GET", "/api/detectors/name:none")
    assert hidden.texts[0].replace("shop", "none") == missing.texts[0]
    assert (hidden.status, hidden.codes) == (404, [1200])
    assert (await bounded.evaluate("name:shop", {})).codes == [1200]
    assert (await caller("GET", f"/api/detectors/{other}/state")).result["events"] == 0
