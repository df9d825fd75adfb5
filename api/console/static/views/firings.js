// The feed: what rules that notify have fired, as it comes, and why.

import { field, h, nothing } from "../shared/dom.js";
import { time } from "../shared/format.js";
import { call, follow } from "../shared/service.js";

const SHOWN_FIRST = 100;
const KEPT = 500;
const TOGETHER_MS = 200;

function why({ version, condition, witnesses_ms = {} }) {
  return h("details", { class: "folded" }, h("summary", {}, "Why"),
    h("p", {}, `Version ${version} of the rule was `, h("code", {}, condition)),
    Object.entries(witnesses_ms).map(([text, at_ms]) => h("p", {}, h("code", {}, text), ` by the event of ${time(at_ms)}`)));
}

function shown(firing) {
  const { seq, time_ms, name, keys, found = {}, suppressed, timed, gap } = firing;
  if (gap) return h("tr", {}, h("td", { colspan: 5, class: "quiet" }, `Firings ${gap.from} to ${gap.to} are not kept any more.`));
  const more = [timed && "by time", suppressed && `${suppressed} held back`].filter(Boolean).join(", ");
  return h("tr", {},
    h("td", {}, seq.toLocaleString("en")), h("td", {}, time(time_ms)),
    h("td", {}, h("strong", {}, name), more && h("small", {}, ` ${more}`)), h("td", {}, h("code", {}, JSON.stringify(keys))),
    h("td", {}, Object.entries(found).map(([text, value]) => h("p", {}, h("code", {}, text), ` ${JSON.stringify(value)}`)), why(firing.why)));
}

export async function firingsView(detector, query, signal) {
  const { feed } = await call("GET", `detectors/${detector.id}/state`, undefined, signal);
  let after = Math.max(feed.newest - SHOWN_FIRST, feed.newest - feed.kept), kept = [], come = [];
  const told = h("p", { class: "quiet", role: "status" });
  const rule = h("input", { type: "search", value: query.get("rule") ?? "", oninput: filter });
  const key = h("input", { type: "search", spellcheck: "false", value: query.get("key") ?? "", oninput: filter });
  const rows = h("tbody");
  const table = h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Number", "Time", "Rule", "Key", "Found"].map((head) => h("th", { scope: "col" }, head)))), rows));
  const none = nothing("");

  function isWanted({ name = "", keys = {} }) {
    return name.toLowerCase().includes(rule.value.trim().toLowerCase()) && JSON.stringify(keys).includes(key.value.trim());
  }

  function draw() {
    const wanted = kept.filter(isWanted);
    rows.replaceChildren(...wanted.map(shown));
    table.hidden = !wanted.length;
    none.hidden = Boolean(wanted.length);
    none.textContent = kept.length ? "None of them is of such a rule and key." : "No rule that notifies has fired yet.";
  }

  // The address shows what is wanted, so that it can be passed on.
  function filter() {
    const wanted = new URLSearchParams({ rule: rule.value, key: key.value });
    history.replaceState(null, "", `#/d/${detector.id}/firings?${wanted}`);
    draw();
  }

  // Thousands may come in a second, so those of a moment are drawn together, and those that would be gone at once are not.
  function add(news) {
    after = news.seq ?? news.gap.to;
    if (come.push(news) === 1) setTimeout(drawCome, TOGETHER_MS);
    if (come.length > 2 * KEPT) come = come.slice(-KEPT);
  }

  function drawCome() {
    const newest = come.slice(-KEPT).reverse();
    come = [];
    kept = [...newest, ...kept].slice(0, KEPT);
    const wanted = newest.filter(isWanted);
    if (!wanted.length && !rows.rows.length) draw();
    if (!wanted.length) return;
    rows.prepend(...wanted.map(shown));
    while (rows.rows.length > KEPT) rows.lastChild.remove();
    table.hidden = false;
    none.hidden = true;
  }

  draw();
  follow(
    () => {
      told.textContent = "Firings appear here as they come.";
      return `detectors/${detector.id}/firings?after=${after}`;
    },
    add, (why) => { told.textContent = why; }, signal);
  return h("section", {},
    h("div", { class: "bar" }, field("Rule", rule, "A part of its name"), field("Key", key, "A part of the values, as shown")),
    told, none, table);
}
