// A form for a rule that checks the condition while it is typed.

import { field, h, submitQuickly } from "../../shared/dom.js";
import { isScalar, parseExact } from "../../shared/exact.js";
import { count } from "../../shared/format.js";
import { call, parseCondition } from "../../shared/service.js";
import { completed } from "./completion.js";
import { conditionTree, makeup } from "./condition.js";

const PAUSE_MS = 250;

// Shows the form; `save` gets the rule. Resolves to what `save` returned, or to null if the form was left. The names of
// facts are offered while a condition is typed.
export function editRule(rule, save, names = []) {
  const name = h("input", { required: true, maxlength: 255, value: rule.name });
  const notify = h("input", { type: "checkbox", checked: rule.notify });
  const description = h("textarea", { rows: 2, maxlength: 4096 });
  description.value = rule.description ?? "";
  const labels = h("textarea", { rows: 2, spellcheck: "false", placeholder: "severity: high" });
  labels.value = labelLines(rule.labels ?? {});
  const timed = h("input", { type: "checkbox", checked: Boolean(rule.timed) });
  const every = h("input", { type: "number", min: 0, step: "any", value: rule.every_secs ?? "" });
  const byBefore = (rule.every_by ?? []).join(", ");
  const by = h("input", {
    spellcheck: "false", value: byBefore,
    placeholder: rule.every_by?.length === 0 ? "none: it acts once in all" : "the keys of its condition",
  });
  // Names that nobody has changed stay as they are, and go with the time.
  const everyBy = () => by.value !== byBefore ? namesIn(by.value) : every.value && rule.every_by ? { every_by: rule.every_by } : {};
  const condition = conditionField(rule.condition, names);
  const failed = h("p", { class: "failed", role: "alert" });
  const saving = h("button", { type: "submit", class: "first" }, "Save");
  const dialog = h("dialog", { "aria-label": rule.name || "New rule" });
  return new Promise((resolve) => {
    let result = null;
    const submit = async (event) => {
      event.preventDefault();
      saving.disabled = true;
      try {
        result = await save({
          name: name.value, condition: condition.value(), notify: notify.checked,
          description: description.value, labels: labelsIn(labels.value),
          timed: timed.checked, every_secs: Number(every.value), ...everyBy(),
        });
        dialog.close();
      } catch (error) {
        failed.textContent = error.message;
      } finally {
        saving.disabled = false;
      }
    };
    dialog.append(h("form", { onsubmit: submit, onkeydown: submitQuickly, oninput: () => failed.replaceChildren() },
      field("Name", name),
      condition.element,
      h("label", { class: "check" }, notify, " Notify: what it fires is in the feed, and its actions have the type “notify”"),
      field("Description", description),
      field("Labels of its actions, a line each", labels),
      h("label", { class: "check" }, timed, " Timed: it also fires when time alone makes it true; the feed tells, so let it notify"),
      field("At most once in so many seconds", every, "Empty: whenever it fires"),
      field("… for each of these facts", by, "Separated by commas"),
      failed,
      h("div", { class: "bar" }, saving,
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("small", {}, "Ctrl+Enter saves, Escape leaves"))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(result); });
    document.body.append(dialog);
    dialog.showModal();
    condition.check();
  });
}

// Changes a rule and returns it. Only a rule without `every_secs` loses its `every_by`.
export async function changeRule(path, rule, wanted, heard) {
  if (!rule.every_by || wanted.every_by || !wanted.every_secs) return call("PATCH", path, wanted, undefined, heard);
  // All that may be refused is in the first change, so that a refused one changes nothing.
  await call("PATCH", path, { ...wanted, every_secs: 0 }, undefined, heard);
  return call("PATCH", path, { every_secs: wanted.every_secs });
}

// How a rule acts, in words, besides whenever its condition is true.
export function actsText({ timed, every_secs: secs, every_by: by }) {
  const each = by ? (by.length ? ` for each ${by.join(", ")}` : " in all") : "";
  return [timed && "timed", secs && `at most once in ${secs} s${each}`].filter(Boolean).join(" · ");
}

// The names that are separated by commas. Without any, a rule has the keys of its condition.
function namesIn(text) {
  const names = text.split(",").map((name) => name.trim()).filter(Boolean);
  return names.length ? { every_by: names } : {};
}

// Labels as lines: "severity: high". Texts that would be read as something else are quoted.
export function labelLines(labels) {
  const shown = (value) => (typeof value === "string" && labelValue(value) === value ? value : JSON.stringify(value));
  return Object.entries(labels).map(([name, value]) => `${name}: ${shown(value)}`).join("\n");
}

function labelValue(text) {
  try {
    const value = parseExact(text);
    return value !== null && isScalar(value) ? value : text;
  } catch {
    return text;
  }
}

function labelsIn(lines) {
  return Object.fromEntries(lines.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`A label is a line such as “severity: high”, not “${line.trim()}”.`);
    return [line.slice(0, at).trim(), labelValue(line.slice(at + 1).trim())];
  }));
}

// What the rule may cost, in words.
function costOf({ event_ns, memories }) {
  const held = memories.map(({ per, entries_max: most }) =>
    `${most === 1 ? "one time" : `up to ${most.toLocaleString("en")} times or values`}${per.length ? ` for each ${per.join(" and ")}` : ""}`);
  const took = event_ns < 1000 ? `${event_ns} ns` : `${(event_ns / 1000).toPrecision(2)} µs`;
  return `About ${took} an event. It remembers ${held.length ? held.join(", and ") : "nothing"}.`;
}

// A text area under which the canonical text, the tree and the JSON appear, or the error with its place.
export function conditionField(text, names) {
  const input = h("textarea", {
    rows: 6, spellcheck: "false", autocomplete: "off", oninput: later, onscroll: follow,
    placeholder: "ok == false and per user (count(ok == false) within 10m >= 3)",
  });
  input.value = text;
  const under = h("div", { class: "under", "aria-hidden": "true" });
  const told = h("div", { class: "told", "aria-live": "polite" });
  let pause, asked = new AbortController();

  function follow() {
    under.scrollTop = input.scrollTop;
  }

  function later() {
    under.replaceChildren();
    clearTimeout(pause);
    pause = setTimeout(check, PAUSE_MS);
  }

  async function check() {
    asked.abort();
    asked = new AbortController();
    under.replaceChildren();
    if (!input.value.trim()) return told.replaceChildren();
    const { signal } = asked;
    try {
      let doubts = [];
      const { condition, text: canonical, estimate } =
        await parseCondition(input.value, signal, (messages) => { doubts = messages; });
      const made = makeup(condition);
      told.replaceChildren(...[
        h("p", { class: "true" }, h("code", {}, canonical)),
        doubts.map((doubt) => h("p", { class: "note" }, doubt)),
        h("p", { class: "quiet" }, [count(made.conditions, "condition"), `${made.depth} deep`,
          `${made.temporal} that remember${made.temporal === 1 ? "s" : ""}`].join(" · ")),
        h("p", { class: "quiet" }, costOf(estimate)),
        h("details", {}, h("summary", {}, "Tree"), h("ul", { class: "tree" }, conditionTree(condition))),
        h("details", {}, h("summary", {}, "JSON"), h("pre", {}, JSON.stringify(condition, null, 2))),
      ].flat());
    } catch (error) {
      if (signal.aborted) return;
      told.replaceChildren(h("pre", { class: "failed" }, error.message));
      underline(error.errors ?? []);
    }
  }

  // The messages name lines and columns, counted from 1, in characters.
  function underline(errors) {
    const lines = input.value.split("\n").map((line) => [...line]);
    const places = errors.flatMap((entry) => [...entry.message.matchAll(/line (\d+), column (\d+)/g)])
      .map(([, line, column]) => [line - 1, column - 1]);
    under.replaceChildren(...lines.flatMap((line, number) => {
      const starts = new Set(places.filter(([at]) => at === number).map(([, column]) => column));
      if (starts.has(line.length)) line.push(" ");
      const parts = [];
      for (let at = 0; at < line.length; at += 1) {
        if (!starts.has(at)) { parts.push(line[at]); continue; }
        let end = at + 1;
        while (/\w/.test(line[at]) && end < line.length && /\w/.test(line[end])) end += 1;
        parts.push(h("mark", {}, line.slice(at, end).join("")));
        at = end - 1;
      }
      return [...parts, "\n"];
    }));
    follow();
  }

  return {
    element: h("div", { class: "field" },
      h("label", {}, h("span", {}, "Condition"), h("div", { class: "editor" }, under, input)), completed(input, names), told),
    value: () => input.value,
    check,
  };
}
