// What a detector holds: in numbers, its keys, its memories, and what its rules cost.

import { ruleChoice } from "../shared/choice.js";
import { countdown } from "../shared/countdown.js";
import { action, failure, h, nothing, row, table } from "../shared/dom.js";
import { bytes, count, time } from "../shared/format.js";
import { call, rulesOf } from "../shared/service.js";
import { explainedTree } from "../shared/tree.js";

const PAGE = 25;
const AGAIN_MS = 2000;
const SORT = { rules: { sort: "cost" }, keys: { sort: "seen" } };

export async function stateView(detector, query, signal) {
  const path = `detectors/${detector.id}/state`;
  const ask = (parameters) => call("GET", `${path}?${new URLSearchParams(parameters)}`, undefined, signal);
  const whole = await ask({});
  const share = (number) => (number === undefined ? "" : `${(number * 100).toPrecision(3)} %`);
  const keyText = (key) => h("code", {}, JSON.stringify(key));

  const keys = pages(ask, "keys", "Find keys that begin with", ["Key", "Last event", "Memories", ""], (one, found) => [
    keyText(one.key), one.last_event.toLocaleString("en"), String(one.memories),
    action("Look", () => look(one.key, found), { "aria-expanded": "false" })],
  (prefix) => prefix ? `No live key begins with “${prefix}”.`
    : !whole.events ? "No event has come yet."
    : "No rule remembers anything for a key now: rules do so under `per`, and keys are dropped once what they remember has run out.");
  const nodes = pages(ask, "nodes", null, ["Remembered", "For each", "Entries", "Takes", "Read by"], (one) => [
    h("code", {}, one.text), one.per.join(", "), one.entries.toLocaleString("en"), bytes(one.bytes), count(one.uses, "rule")],
  () => "No rule that is on looks back: those with `once`, `count` and the like remember something.");
  const costs = pages(ask, "rules", "Find rules that begin with", ["Rule", "Fired", "Evaluated at", "Share of time"], (one) => [
    h("a", { href: `#/d/${detector.id}/timeline?rule=${one.ruleId}` }, one.name),
    one.times_true.toLocaleString("en"), share(one.evaluated_share), share(one.time_share)],
  (prefix) => prefix ? `No rule's name begins with “${prefix}”.` : "The detector has no rules yet.");

  let rules;
  // Shows the standing verdicts of rules for one key below the key's row, or hides them again.
  async function look(key, keyRow) {
    const button = keyRow().querySelector("button");
    const shownBefore = keyRow().nextElementSibling;
    if (shownBefore?.classList.contains("looked")) {
      shownBefore.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    rules ??= await rulesOf(detector.id, signal);
    if (!rules.length) throw new Error("The detector has no rules any more.");
    // A rule that has these keys says most about them.
    const keyed = Object.keys(key).map((name) => `"key":${JSON.stringify(name)}`);
    const first = rules.find(({ condition }) => keyed.every((part) => JSON.stringify(condition).includes(part)));
    const chosen = ruleChoice(rules, first?.id, draw);
    const shown = h("div");
    const standing = () => ask({ rule: chosen.value(), key: JSON.stringify(key) });
    let told;

    async function draw() {
      tell(await standing());
    }

    function tell(found) {
      told = found;
      const { node, clock_ms, fires_ms } = found;
      shown.replaceChildren(
        fires_ms === undefined ? "" : countdown("If no event comes, it fires by time", fires_ms, clock_ms),
        h("p", { class: "quiet" }, "What an event would find that had only the keys of the rule" +
          (clock_ms === undefined ? "." : ` and came at ${time(clock_ms)}, by the detector's clock.`)),
        explainedTree(node, clock_ms));
    }
    await draw();
    const looked = h("tr", { class: "looked" }, h("td", { colspan: 4, "aria-live": "polite" },
      h("h3", {}, "For ", keyText(key)), chosen.element, shown));
    keyRow().after(looked);
    button.setAttribute("aria-expanded", "true");
    looked.scrollIntoView({ block: "nearest" });

    // An event, or time, may change when a timed rule fires.
    const again = setInterval(async () => {
      if (!shown.isConnected) return clearInterval(again);
      if (document.hidden || !rules.find((rule) => rule.id === chosen.value())?.timed) return;
      const now = await standing().catch(() => told);
      if (now.ruleId === chosen.value() && now.fires_ms !== told.fires_ms) tell(now);
    }, AGAIN_MS);
  }

  // A million keys take seconds to read, so the figures come first.
  for (const one of [keys, nodes, costs]) one.begin();
  return h("section", {},
    facts({
      Clock: whole.clock_ms === undefined ? "no event yet" : time(whole.clock_ms),
      Events: whole.events.toLocaleString("en"),
      Rules: `${whole.rules.enabled.toLocaleString("en")} of ${whole.rules.total.toLocaleString("en")} on`,
      "Live keys": whole.keys.live.toLocaleString("en"),
      "Held by keys and histories": `${bytes(whole.bytes.held)} of ${bytes(whole.bytes.max)}`,
      Relations: whole.relations.total > 0 && `${whole.relations.total.toLocaleString("en")}, ${bytes(whole.relations.bytes)} of ${bytes(whole.relations.bytes_max)}`,
      Feed: whole.feed.newest > 0 && `${whole.feed.kept.toLocaleString("en")} of ${whole.feed.newest.toLocaleString("en")} firings, ${bytes(whole.feed.bytes)}`,
      "Rules are": whole.indexed ? "indexed" : "evaluated at every event",
      Journal: whole.journal && `record ${whole.journal.record}, ${bytes(whole.journal.bytes)}`,
      Snapshot: whole.snapshot && `record ${whole.snapshot.record}` +
        (whole.snapshot.saved_ms === undefined ? "" : `, saved at ${time(whole.snapshot.saved_ms)}`),
      "Runs in": whole.worker && `${whole.worker.node}, process ${whole.worker.pid}, ${bytes(whole.worker.resident_bytes ?? 0)}`,
    }),
    h("h2", {}, "Keys"), keys.element,
    h("h2", {}, "What is remembered"), nodes.element,
    h("h2", {}, "What rules fired and cost"), h("p", { class: "quiet" }, since(whole.counted_since)), costs.element);
}

function since({ event, clock_ms }) {
  return event
    ? `Since event ${event.toLocaleString("en")}, at ${time(clock_ms)}: a version that stored no figures had the detector before.`
    : "Since the first event.";
}

function facts(told) {
  return h("dl", { class: "facts" }, Object.entries(told).filter(([, value]) => value).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// A list that is loaded a page at a time.
// `cells` gets an entry, and a function that returns its row; `empty` says for a prefix why there is none.
function pages(ask, list, searched, heads, cells, empty) {
  let after, found = [], asked = 0;
  const shown = h("div", {}, h("p", { class: "quiet" }, "Loading …"));
  const more = action("More", () => load(after));
  const prefix = searched && h("input", { type: "search", placeholder: searched, "aria-label": searched, onchange: begin });
  more.hidden = true;

  async function begin() {
    try {
      await load();
    } catch (error) {
      if (error.name !== "AbortError") shown.replaceChildren(failure(error));
    }
  }

  async function load(from) {
    const turn = ++asked;
    const page = await ask({
      list, limit: PAGE, ...SORT[list],
      ...(prefix?.value ? { prefix: prefix.value } : {}), ...(from ? { after: from } : {}),
    });
    // If somebody typed on meanwhile, a later request has the page to show.
    if (turn !== asked) return;
    found = from ? [...found, ...page[list]] : page[list];
    after = page.after;
    more.hidden = after === undefined;
    shown.replaceChildren(found.length
      ? table(heads, found.map((one) => { const own = row(...cells(one, () => own)); return own; }))
      : nothing(empty(prefix?.value)));
  }

  return { element: h("div", {}, prefix, shown, more), begin };
}
