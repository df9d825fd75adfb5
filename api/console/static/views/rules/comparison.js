// How the firings of a rule and its draft differ: three numbers, examples, and the draft's promotion.

import { action, h, nothing } from "../../shared/dom.js";
import { count, time } from "../../shared/format.js";
import { call } from "../../shared/service.js";
import { explainedTree } from "../../shared/tree.js";

const KINDS = { only_rule: "only the rule", only_draft: "only the draft", both: "both" };

const LOOK_MS = 2000;
const SHOWN = 50;

// `promoted` is called with the rule once it has exchanged its condition with the draft's.
export async function comparisonOf(path, rule, promoted) {
  const found = await call("GET", `${path}/${rule.id}/comparison?after=0`);
  const examples = Object.keys(KINDS).flatMap((kind) => found.examples[kind].map((one) => difference({ fired: kind, ...one })));
  const young = found.young_until_ms === null ? "One of the two has seen fewer events than the other, and looks back without a bound."
    : found.young_until_ms && `Up to ${time(found.young_until_ms)} they may differ because one has seen fewer events than the other.`;
  const numbers = h("span");
  const differences = h("div", { "aria-live": "polite" });
  const section = h("section", { "aria-label": "Comparison with the draft" },
    h("p", {}, h("strong", {}, "Draft: "), numbers),
    young && h("p", { class: "quiet" }, young),
    action("Promote the draft", async () => promoted(await call("POST", `${path}/${rule.id}/promote`)), { "data-needs": "write" }),
    examples.length ? h("details", { class: "folded" }, h("summary", {}, `Examples (${examples.length})`), examples)
      : nothing("No event has fired either of them since the comparison began."),
    differences);
  tell(found);
  setTimeout(look, LOOK_MS, found);
  return section;

  function tell(found) {
    numbers.textContent = `${count(found.events, "event")}. Fired: ` +
      Object.entries(KINDS).map(([kind, label]) => `${label} ${found[kind]}`).join(", ");
    differences.prepend(...found.differences.map(difference).reverse());
    while (differences.childElementCount > SHOWN) differences.lastChild.remove();
  }

  // Asks again while the section is open, because the service keeps trees only while somebody asks.
  async function look(before) {
    if (!section.isConnected || !section.closest("details")?.open) return;
    let found = before;
    try {
      found = await call("GET", `${path}/${rule.id}/comparison?after=${before.since_event + before.events}`);
      tell(found);
    } catch {
      // The rule or its draft may be gone; the numbers so far stay on the page.
    }
    setTimeout(look, LOOK_MS, found);
  }
}

function difference(one) {
  const trees = [["the rule", one.rule], ["the draft", one.draft]].filter(([, node]) => node);
  return h("details", { class: "rule" },
    h("summary", {}, `${KINDS[one.fired]}, ${time(one.timestamp_ms)} `, h("code", {}, JSON.stringify(one.fields))),
    trees.length === 0 && h("pre", {}, JSON.stringify(one.fields, null, 2)),
    trees.map(([label, node]) => [h("p", { class: "quiet" }, `Why ${label} ${node.verdict ? "fired" : "did not fire"}:`), explainedTree(node, one.timestamp_ms)]));
}
