// The terms of a comparison: their words, and the conditions that they observe.

import { isScalar } from "../../shared/exact.js";

const SIGNS = { add: "+", sub: "-", mul: "*", div: "/" };
const AGGREGATES = ["count", "sum", "avg", "min", "max"];

// The text of a term. Conditions in it are shown below it, and `within` gives the text of a window.
export function termText(term, within) {
  if (isScalar(term)) return JSON.stringify(term);
  const [[name, content]] = Object.entries(term);
  if (name === "fact") return content;
  if (name in SIGNS) return `(${content.map((operand) => termText(operand, within)).join(` ${SIGNS[name]} `)})`;
  if (name === "abs") return `abs(${termText(content, within)})`;
  if (name === "clock") return `${content.part}(${content.zone === undefined ? "" : JSON.stringify(content.zone)})`;
  if (typeof content === "string") return `${name}(${content})`;
  const over = content.fact === undefined ? (name === "now" ? "" : "…") : `${content.fact}${content.where ? " where …" : ""}`;
  return `${content.earlier ? "earlier " : ""}${name}(${over})${within(content, "within")}`;
}

// The conditions in a term, in the order of its text.
export function conditionsIn(term) {
  if (isScalar(term)) return [];
  const [[name, content]] = Object.entries(term);
  if (name === "age") return [content];
  if (name in SIGNS) return content.flatMap(conditionsIn);
  if (name === "abs") return conditionsIn(content);
  return [content.inner ?? content.where].filter((part) => part !== undefined);
}

// Whether a term remembers something of other events.
export function remembers(term) {
  if (isScalar(term)) return false;
  const [[name, content]] = Object.entries(term);
  if (name in SIGNS) return content.some(remembers);
  return name === "abs" ? remembers(content) : ["prev", "last", "age", ...AGGREGATES].includes(name);
}
