// A form for an event: explains what it would do, or has it evaluated.

import { ruleChoice } from "../shared/choice.js";
import { countdown } from "../shared/countdown.js";
import { field, h, nothing, say, submitQuickly, unsay } from "../shared/dom.js";
import { isScalar, parseExact } from "../shared/exact.js";
import { count, time } from "../shared/format.js";
import { call, rulesOf, serverNow } from "../shared/service.js";
import { explainedTree } from "../shared/tree.js";

const SHOWN = 200;
const NOTED = 20;
const TOO_LARGE = 1400;

export async function eventView(detector, query, signal) {
  const path = `detectors/${detector.id}`;
  const rules = await rulesOf(detector.id, signal);
  const fields = h("textarea", { rows: 7, spellcheck: "false", required: true });
  fields.value = remembered(detector.id) ?? '{\n  "user": "ada",\n  "ok": false\n}';
  const when = h("input", { placeholder: "now", autocomplete: "off", spellcheck: "false" });
  const vars = h("textarea", { rows: 2, spellcheck: "false", placeholder: "{}" });
  const rule = ruleChoice(rules, query.get("rule"), undefined, "All rules");
  const only = h("input", { type: "checkbox" });
  const shown = h("div", { "aria-live": "polite" });
  let refused = null, messages = [];
  const heard = (texts) => { messages = texts; };

  // What was refused is changed now.
  function changed() {
    if (!refused) return;
    refused();
    refused = null;
    shown.replaceChildren();
  }

  function body() {
    const event = { fields: parsed(fields.value, "Fields"), timestamp_ms: moment(when.value) };
    sessionStorage.setItem(kept(detector.id), fields.value);
    const sent = parsed(vars.value || "{}", "Variables");
    return Object.keys(sent).length ? { event, context: { vars: sent } } : { event };
  }

  const explain = async () => {
    const asked = body();
    const one = rule.value();
    const { all, complete } = one
      ? { all: (await call("POST", `${path}/explain`, { ...asked, ruleId: one }, signal, heard)).rules, complete: true }
      : await explainAll(asked);
    const { clock_ms } = await call("GET", `${path}/state`, undefined, signal);
    // A late event is evaluated at the time of the detector's clock.
    const now_ms = Math.max(asked.event.timestamp_ms, clock_ms ?? -Infinity);
    const found = all.filter((one) => one.verdict || !only.checked);
    shown.replaceChildren(
      h("p", {}, `At ${time(now_ms)}, ${count(all.filter((one) => one.verdict).length, "rule")} ` +
        `of ${one ? 1 : rules.length} would fire. Nothing was recorded.`),
      ...noted(messages),
      complete ? "" : h("p", { class: "quiet" }, "There are too many rules to explain each of them at once, so only those " +
        "that fire are shown. Choose a rule to see why it does not."),
      found.length ? "" : nothing(!rules.length ? "The detector has no rules yet." : "No rule fires, and only those that do are shown."),
      ...found.slice(0, SHOWN).map((one) => explained(one, now_ms, found.length < 6)),
      found.length > SHOWN ? h("p", { class: "quiet" }, `${found.length - SHOWN} more are not shown.`) : "");
  };

  // All rules; or, if they are too large together, those that would fire.
  async function explainAll(asked) {
    try {
      return { all: (await call("POST", `${path}/explain`, asked, signal, heard)).rules, complete: true };
    } catch (error) {
      if (!error.errors?.some((entry) => entry.code === TOO_LARGE)) throw error;
    }
    try {
      const { actions } = await call("POST", `${path}/evaluate?dry_run=true&explain=true`, asked, signal, heard);
      return { all: actions.map((one) => ({ ...one, verdict: true })), complete: false };
    } catch (error) {
      if (!error.errors?.some((entry) => entry.code === TOO_LARGE)) throw error;
      throw new Error("The rules are too many to be explained at once. Choose one.");
    }
  }

  const evaluate = async () => {
    const asked = body();
    const { actions } = await call("POST", `${path}/evaluate`, asked, signal, heard);
    shown.replaceChildren(
      h("p", {}, `Recorded, with the time ${time(asked.event.timestamp_ms)}. ${count(actions.length, "rule")} fired.`),
      ...noted(messages),
      h("ul", {}, actions.map((one) => h("li", { class: "true" }, one.name, one.notify && h("span", { class: "tag" }, "notify"),
        one.suppressed && h("small", {}, ` ${one.suppressed} held back before`)))));
  };

  const run = (work) => async (event) => {
    event.preventDefault();
    unsay();
    messages = [];
    try {
      await work();
    } catch (error) {
      shown.replaceChildren(h("pre", { class: "failed", role: "alert" }, error.message));
      refused = say("The event was not taken", true);
    }
    shown.scrollIntoView({ block: "nearest" });
  };
  return h("section", { class: "columns" },
    h("form", { onsubmit: run(explain), onkeydown: submitQuickly, oninput: changed },
      field("Fields, as JSON", fields),
      field("Time", when, "Empty for now; or ISO 8601, in UTC unless it names a zone; or milliseconds since 1970"),
      h("details", {}, h("summary", {}, "Variables"), field("Variables, as JSON", vars, "What names with a $ stand for")),
      field("Rule", rule.element, rules.length > 1 && "Type a part of its name; empty for all rules"),
      h("label", { class: "check" }, only, " Only rules that fire"),
      h("div", { class: "bar" },
        h("button", { type: "submit", class: "first" }, "Explain"),
        h("button", { type: "button", onclick: run(evaluate), "data-needs": "evaluate" }, "Evaluate and record")),
      h("small", {}, "Ctrl+Enter explains")),
    shown);
}

function noted(messages) {
  return messages.slice(0, NOTED).map((message) => h("p", { class: "note" }, message));
}

function explained(one, now_ms, open) {
  const needed = one.why_not ?? [];
  return h("details", { open, class: "rule" },
    h("summary", {}, h("span", { class: `verdict ${one.verdict}` }, one.verdict ? "fires" : "does not fire"), h("strong", {}, one.name)),
    needed.length > 0 && h("p", { class: "quiet" }, `It would ${one.verdict ? "not " : ""}fire if ${needed.length > 1 ? "these" : "this"} turned: `,
      needed.map((text, number) => [number ? ", " : "", h("code", {}, text)])),
    one.fires_ms !== undefined &&
      countdown("If it comes and then nothing else does, the rule fires by time", one.fires_ms, now_ms),
    one.node ? explainedTree(one.node, now_ms) : h("p", { class: "quiet" }, "Choose this rule to see why."));
}

function parsed(text, what) {
  let value;
  try {
    value = parseExact(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (isScalar(value) || Array.isArray(value)) throw new Error(`${what}: expected an object`);
  return value;
}

function moment(text) {
  const given = text.trim();
  if (!given) return serverNow();
  const ms = /^-?\d+(\.\d+)?$/.test(given) ? Number(given) : Date.parse(inUtc(given));
  if (isNaN(ms)) throw new Error(`Time: \`${given}\` is neither ISO 8601 nor a number of milliseconds`);
  return ms;
}

// Browsers take a time without a zone for their own.
function inUtc(text) {
  const zoneless = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(:\d\d(\.\d+)?)?)$/.exec(text);
  return zoneless ? `${zoneless[1]}T${zoneless[2]}Z` : text;
}

const kept = (id) => `rule-detector.event.${id}`;

function remembered(id) {
  return sessionStorage.getItem(kept(id));
}
