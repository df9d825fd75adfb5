// Signs in, and shows the view that the address names: #/, #/cluster or #/d/DETECTOR/VIEW.

import { field, failure, h, say, unsay } from "./shared/dom.js";
import { call, learnBounds, passes, ServiceError, session, signedIn, signIn, signOut } from "./shared/service.js";
import { clusterView } from "./views/cluster.js";
import { detectorsView } from "./views/detectors.js";
import { eventView } from "./views/event.js";
import { firingsView } from "./views/firings.js";
import { relationsView } from "./views/relations.js";
import { rulesView } from "./views/rules/rules.js";
import { stateView } from "./views/state.js";
import { timelineView } from "./views/timeline.js";

const VIEWS = {
  rules: ["Rules", rulesView],
  relations: ["Relations", relationsView],
  event: ["Try an event", eventView],
  firings: ["Firings", firingsView],
  state: ["State", stateView],
  timeline: ["Timeline", timelineView],
};

const SLOW_MS = 2000;
const AGAIN_MS = 2000;

const main = document.getElementById("main");
const page = document.getElementById("page");
const where = document.getElementById("where");
const signOutButton = document.getElementById("sign-out");
let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  signOutButton.hidden = !signedIn();
  where.replaceChildren();
  document.title = "Rule Detector console";
  if (!signedIn()) {
    main.replaceChildren(signInForm());
    main.querySelector("input").focus();
    return;
  }
  const [path, query] = location.hash.slice(2).split("?");
  const [kind, detectorId, name = "rules"] = path.split("/");
  main.setAttribute("aria-busy", "true");
  let loaded = () => {};
  const slow = setTimeout(() => {
    loaded = say("Still loading: a detector that was not active reads its files first", false, true);
  }, SLOW_MS);
  try {
    await learnBounds(signal);
    const view = kind === "d" ? await detector(detectorId, name, new URLSearchParams(query), signal)
      : await (kind === "cluster" ? clusterView : detectorsView)(signal);
    if (!signal.aborted) {
      main.replaceChildren(...[view].flat());
      page.scrollTop = 0;
      // The page scrolls, not the document, so keys scroll it only from inside.
      if (document.activeElement === document.body) main.focus({ preventScroll: true });
    }
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(failure(error));
    if (error instanceof ServiceError && passes(error)) setTimeout(() => signal.aborted || show(), AGAIN_MS);
  } finally {
    clearTimeout(slow);
    loaded();
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

async function detector(id, name, query, signal) {
  const known = await call("GET", `detectors/${encodeURIComponent(id)}`, undefined, signal);
  if (signal.aborted) return [];
  document.title = `${known.name} · Rule Detector console`;
  const shown = VIEWS[name] ? name : "rules";
  where.replaceChildren(...Object.entries(VIEWS).map(([key, [label]]) =>
    h("a", { href: `#/d/${id}/${key}`, "aria-current": key === shown && "page" }, label)));
  return [h("h1", {}, known.name, h("code", { class: "id" }, id)), await VIEWS[shown][1](known, query, signal)];
}

function signInForm() {
  const failed = h("p", { class: "failed", role: "alert" });
  const token = h("input", {
    type: "password", autocomplete: "off", required: true, spellcheck: "false", oninput: () => failed.replaceChildren(),
  });
  const submit = async (event) => {
    event.preventDefault();
    // What was copied from a terminal may have blanks around it.
    signIn(token.value.trim());
    try {
      await call("GET", "detectors?limit=1");
      await show();
    } catch (error) {
      signOut();
      main.querySelector("[role=alert]").textContent = error.message;
    }
  };
  return h("form", { class: "sign-in", onsubmit: submit },
    h("h1", {}, "Sign in"),
    field("Token", token, "The service prints the first token when it starts on a new folder. " +
      "This tab forgets it when it is closed."),
    failed,
    h("button", { type: "submit", class: "first" }, "Sign in"));
}

signOutButton.addEventListener("click", () => signOut());
session.addEventListener("ended", (event) => {
  show();
  main.querySelector("[role=alert]").textContent = event.detail;
});
window.addEventListener("hashchange", () => {
  // What failed, failed in the view that is left.
  unsay(".failed");
  show();
});
show();
