// JSON whose integers stay exact: those that no number of JavaScript holds are kept as they are written.

export function parseExact(text) {
  return JSON.parse(text, (name, value, { source } = {}) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) && JSON.rawJSON ? JSON.rawJSON(source) : value);
}
