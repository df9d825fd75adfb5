// JSON whose integers stay exact: those that no number of JavaScript holds are kept as they are written.

const LONG = /\d{16}/;

export function parseExact(text) {
  if (!LONG.test(text) || !JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (name, value, { source } = {}) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? JSON.rawJSON(source) : value);
}

// Whether a value of such JSON is neither an object nor an array.
export function isScalar(value) {
  return value === null || typeof value !== "object" || Boolean(JSON.isRawJSON?.(value));
}
