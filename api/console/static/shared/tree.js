// An explained condition: a tree coloured by truth, with witnesses and the time until which it stays so.

import { h } from "./dom.js";
import { isScalar } from "./exact.js";
import { duration, time } from "./format.js";

// `now_ms` is the time at which the event was explained, by the detector's clock.
export function explainedTree(node, now_ms) {
  return h("ul", { class: "tree explained" }, item(node, now_ms));
}

// What was counted or added; of a comparison, the values of its terms.
function valueOf(found) {
  if (isScalar(found)) return JSON.stringify(found);
  return Object.entries(found).map(([term, value]) => `${term} is ${JSON.stringify(value)}`).join(", ");
}

function item(node, now_ms) {
  const notes = [];
  for (const [name, value] of Object.entries(node.key ?? {})) notes.push(`${name} ${JSON.stringify(value)}`);
  if (node.found !== undefined) notes.push(`found ${valueOf(node.found)}`);
  if (node.witness_ms !== undefined) {
    const before = node.witness_ms < now_ms ? `, ${duration(now_ms - node.witness_ms)} before` : "";
    notes.push(`settled at ${time(node.witness_ms)}${before}`);
  }
  if (node.since_ms < now_ms && node.since_ms !== node.witness_ms) notes.push(`at least since ${time(node.since_ms)}`);
  if (node.until_ms !== undefined) notes.push(`until ${time(node.until_ms)}, for another ${duration(node.until_ms - now_ms)}`);
  const values = Object.entries(node.values ?? {}).map(([name, value]) => `${name} is ${JSON.stringify(value)}`);
  if (node.verdict === false && !node.nodes && !node.values && !node.note && node.found === undefined) values.push("missing");
  return h("li", { class: String(node.verdict) },
    h("span", { class: "verdict" }, String(node.verdict)),
    h("code", {}, node.text),
    [...values, ...notes].map((note) => h("small", {}, note)),
    node.note && h("small", { class: "note" }, node.note),
    node.nodes && h("ul", {}, node.nodes.map((inner) => item(inner, now_ms))));
}
