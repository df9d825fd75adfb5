// An explained condition: a tree coloured by truth, with witnesses and the time until which it stays so.

import { h } from "./dom.js";
import { duration, time } from "./format.js";

const LIVE_MS = 86_400_000;

// `now_ms` is the time of the event that was explained.
export function explainedTree(node, now_ms) {
  return h("ul", { class: "tree explained" }, item(node, now_ms));
}

function item(node, now_ms) {
  const notes = [];
  for (const [name, value] of Object.entries(node.key ?? {})) notes.push(`${name} ${JSON.stringify(value)}`);
  if (node.found !== undefined) notes.push(`found ${node.found}`);
  if (node.witness_ms !== undefined) {
    notes.push(`settled at ${time(node.witness_ms)}, ${duration(now_ms - node.witness_ms)} ago`);
  }
  if (node.since_ms !== undefined) notes.push(`since ${time(node.since_ms)} or before`);
  const values = Object.entries(node.values ?? {}).map(([name, value]) => `${name} is ${JSON.stringify(value)}`);
  if (node.verdict === false && !node.nodes && !node.values && node.found === undefined) values.push("missing");
  // Between two events, some verdicts depend on the next one.
  const verdict = node.verdict === undefined ? "open" : String(node.verdict);
  return h("li", { class: verdict },
    h("span", { class: "verdict" }, verdict),
    h("code", {}, node.text),
    [...values, ...notes].map((note) => h("small", {}, note)),
    node.until_ms !== undefined && h("small", {}, until(node.until_ms, now_ms)),
    node.note && h("small", { class: "note" }, node.note),
    node.nodes && h("ul", {}, node.nodes.map((inner) => item(inner, now_ms))));
}

// A verdict at a current event counts down; one at a recorded event says how long it stays.
function until(until_ms, now_ms) {
  if (Math.abs(Date.now() - now_ms) > LIVE_MS) {
    return `until ${time(until_ms)}, for another ${duration(until_ms - now_ms)}`;
  }
  const left = h("time", { datetime: new Date(until_ms).toISOString() });
  const tick = () => {
    const ms = until_ms - Date.now();
    left.textContent = ms >= 0 ? `${duration(Math.ceil(ms / 1000) * 1000)} left` : "over";
    if (ms >= 0) setTimeout(() => left.isConnected && tick(), 1000);
  };
  queueMicrotask(tick);
  return [`until ${time(until_ms)}, `, left];
}
