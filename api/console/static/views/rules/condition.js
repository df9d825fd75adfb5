// A condition's JSON as a tree, with the words of the language.

import { h } from "../../shared/dom.js";
import { isScalar } from "../../shared/exact.js";
import { conditionsIn, remembers, termText } from "./terms.js";

const SIGNS = { eq: "==", neq: "!=", gt: ">", gte: ">=", lt: "<", lte: "<=", in: "in", nin: "not in" };
const WINDOWS = [[604_800, "w"], [86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function conditionTree(condition) {
  const [[member, content]] = Object.entries(condition);
  const { label, parts } = described(member, content);
  return h("li", {}, h("code", {}, label), parts.length > 0 && h("ul", {}, parts.map(conditionTree)));
}

// The line of a condition, and the conditions inside it.
export function described(member, content) {
  switch (member) {
    case "leaf":
      return { label: leaf(content), parts: [] };
    case "ref":
      if (content.op === "eq" && content.fact === content.reference) return { label: `exists ${content.fact}`, parts: [] };
      return { label: `${content.fact} ${SIGNS[content.op]} ${content.reference}`, parts: [] };
    case "in_relation":
      return { label: `${content.relation}(${content.args.map((arg) => arg.fact ?? JSON.stringify(arg)).join(", ")})`, parts: [] };
    case "in_network":
      return { label: `${content.fact} in network ${content.networks.relation ?? JSON.stringify(content.networks)}`, parts: [] };
    case "some":
      return { label: `some ${content.fact}`, parts: [content.inner] };
    case "compare": {
      const [left, right] = [content.left, content.right].map((term) => termText(term, within));
      return { label: `${left} ${SIGNS[content.op]} ${right}`, parts: [content.left, content.right].flatMap(conditionsIn) };
    }
    case "all":
      return { label: "and", parts: content };
    case "any":
      return { label: "or", parts: content };
    case "keyed": {
      const where = content.where === undefined ? [] : [content.where];
      return { label: `per ${content.key}${where.length ? " where … :" : ""}`, parts: [...where, content.inner] };
    }
    default:
      return operator(member, content);
  }
}

// Any other member is an operator. Its name is its word, perhaps with that of its window: `once_within`.
function operator(member, content) {
  const parts = ["where", "inner", "left", "right", "reset"].map((name) => content[name]).filter((part) => part !== undefined);
  // Without members of its own, the content is the condition inside.
  if (parts.length === 0 && content.fact === undefined) return { label: member, parts: [content] };
  const [, word, joint = "within"] = member.match(/^(.*?)(?:_(within|for|since))?$/);
  const fact = content.fact === undefined ? "" : `(${content.fact})`;
  const window = content.reset === undefined ? within(content, joint) : " … since …";
  const boundary = content.boundary === undefined ? "" : ` ${content.boundary}`;
  const comparison = content.op === undefined ? "" : ` ${SIGNS[content.op]} ${compared(content.value)}`;
  return { label: word + fact + window + boundary + comparison, parts };
}

function leaf({ fact, op, value }) {
  if (op === "between" && value[1] === Number.MAX_VALUE) return `${fact} >= ${JSON.stringify(value[0])}`;
  if (op === "between" && value[0] === -Number.MAX_VALUE) return `${fact} <= ${JSON.stringify(value[1])}`;
  if (op === "between") return `${fact} between ${JSON.stringify(value[0])} and ${JSON.stringify(value[1])}`;
  return `${fact} ${SIGNS[op] ?? op} ${JSON.stringify(value)}`;
}

function compared(value) {
  return isScalar(value) ? JSON.stringify(value) : `${value.times === undefined ? "" : `${JSON.stringify(value.times)} * `}${value.fact}`;
}

// The window after its word, with both bounds in brackets if it has a lower one.
function within({ window_secs: most, min_secs: least }, joint) {
  if (most === undefined) return "";
  return ` ${joint} ${least === undefined ? window_(most) : `[${window_(least)}, ${window_(most)}]`}`;
}

function window_(secs) {
  const [size, unit] = WINDOWS.find(([size]) => secs >= size && secs % size === 0) ?? [0.001, "ms"];
  return `${Math.round((secs / size) * 1000) / 1000}${unit}`;
}

// What a condition consists of: a rough measure of what it may cost.
export function makeup(condition) {
  const found = { conditions: 0, temporal: 0, keyed: 0, depth: 0 };
  const visit = (node, depth) => {
    const [[member, content]] = Object.entries(node);
    found.conditions += 1;
    found.depth = Math.max(found.depth, depth);
    if (member === "keyed") found.keyed += 1;
    else if (member === "compare") found.temporal += remembers(content.left) || remembers(content.right) ? 1 : 0;
    else if (!["leaf", "ref", "in_relation", "in_network", "some", "anywhere", "all", "any", "not"].includes(member)) found.temporal += 1;
    described(member, content).parts.forEach((part) => visit(part, depth + 1));
  };
  visit(condition, 1);
  return found;
}
