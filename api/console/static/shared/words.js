// Which words may be meant where a condition is being typed.

const OFFERED_MAX = 8;

// The beginning of a name or keyword before the caret; empty within a quoted text or a comment.
export function begunWord(text, caret) {
  const before = text.slice(0, caret);
  const rest = before.replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\n]|``)*`|#[^\n]*\n/g, (found) => " ".repeat(found.length));
  if (/["'`#]/.test(rest)) return "";
  return /(?:^|[^\w.$])([A-Za-z_][\w.]*)$/.exec(rest)?.[1] ?? "";
}

// Those of some words that begin so, whatever their letter case, and are longer.
export function offeredWords(begun, words) {
  const start = begun.toLowerCase();
  if (!start) return [];
  return [...new Set(words)].filter((word) => word.length > begun.length && word.toLowerCase().startsWith(start))
    .sort().slice(0, OFFERED_MAX);
}

// The names of the facts and keys that conditions read.
export function namesRead(conditions) {
  const names = new Set();
  const visit = (value, member) => {
    if (Array.isArray(value)) value.forEach((element) => visit(element, member));
    else if (value && typeof value === "object") Object.entries(value).forEach(([name, inner]) => visit(inner, name));
    else if (["fact", "key", "reference", "left", "right"].includes(member) && /^[A-Za-z_][\w.]*$/.test(value)) names.add(value);
  };
  visit(conditions);
  return [...names];
}
