// How the firings of a rule and its draft differ: three numbers, examples, and the draft's promotion.

import { action, count, h, time } from "./dom.js";
import { call } from "./service.js";

const KINDS = { only_rule: "only the rule", only_draft: "only the draft", both: "both" };

// `promoted` is called with the rule once it has exchanged its condition with the draft's.
export async function comparisonOf(path, rule, promoted) {
  const found = await call("GET", `${path}/${rule.id}/comparison`);
  const examples = Object.entries(KINDS).flatMap(([kind, label]) =>
    found.examples[kind].map((one) => h("li", {}, `${label}, ${time(one.timestamp_ms)} `, h("code", {}, JSON.stringify(one.fields)))));
  const young = found.young_until_ms === null ? "The draft looks back without a window, and has seen fewer events."
    : found.young_until_ms && `Until ${time(found.young_until_ms)} the draft may differ because it has seen fewer events.`;
  return h("section", { "aria-label": "Comparison with the draft" },
    h("p", {}, h("strong", {}, "Draft: "), `${count(found.events, "event")}. Fired: `,
      Object.entries(KINDS).map(([kind, label]) => `${label} ${found[kind]}`).join(", ")),
    young && h("p", { class: "quiet" }, young),
    examples.length > 0 && h("ul", {}, ...examples),
    action("Promote the draft", async () => promoted(await call("POST", `${path}/${rule.id}/promote`))));
}
