// The rules of a detector: a page of a list that may have thousands, and one rule in full.

import { action, drawnAnew, h, nothing, row, say, table, unsay } from "../../shared/dom.js";
import { count } from "../../shared/format.js";
import { call, may, parseCondition, rulePages, rulesOf, RULES_PAGE } from "../../shared/service.js";
import { namesRead } from "../../shared/words.js";
import { comparisonOf } from "./comparison.js";
import { conditionTree } from "./condition.js";
import { actsText, changeRule, editRule, labelLines } from "./editor.js";
import { versionsOf } from "./versions.js";

const PAGE = 50;

// The canonical text of a rule from a list.
async function textOf(rule, signal) {
  return rule.text ?? (await parseCondition(rule.condition, signal)).text;
}

export async function rulesView(detector, query, signal) {
  const path = `detectors/${detector.id}/rules`;
  const pages = rulePages(detector.id, signal, true);
  let rules = (await pages.next()).value ?? [];
  let reading = true;
  let from = 0;
  let drawn = "";
  const list = h("div");
  const told = h("p", { class: "quiet" });
  const filter = h("input", { type: "search", placeholder: "Filter by name or by what a rule says", oninput: restart });

  function restart() {
    from = 0;
    draw();
  }

  // The first rules are shown while the others, perhaps a hundred thousand, are read.
  async function readRest() {
    for await (const page of pages) {
      rules.push(...page);
      draw(true);
    }
    reading = false;
    draw(true);
  }

  // With `ifOthers`, what stays is not drawn again, because somebody may be reading it.
  function draw(ifOthers = false) {
    const wanted = filter.value.toLowerCase();
    const found = rules.filter((rule) =>
      !wanted || `${rule.name} ${rule.id} ${rule.description ?? ""} ${JSON.stringify(rule.labels ?? {})} ${rule.text ?? ""} ${rule.source ?? ""}`.toLowerCase().includes(wanted));
    const shown = found.slice(from, from + PAGE);
    told.textContent = found.length
      ? `${from + 1} to ${from + shown.length} of ${count(found.length, "rule")}`
      : "0 rules";
    if (reading) told.append("; more are being read");
    const ids = JSON.stringify([shown.map(({ id }) => id), found.length > from + PAGE]);
    if (ifOthers && ids === drawn) return;
    drawn = ids;
    const turn = (label, to) => h("button", {
      type: "button", "data-key": label, disabled: to < 0 || to >= found.length, onclick: () => { from = to; draw(); },
    }, label);
    drawnAnew(() => list.replaceChildren(
      shown.length ? table(["On", "Priority", "Rule", "Notify", ""], shown.map(ruleRow), "stacked")
        : nothing(rules.length ? `No rule's name, id or condition contains “${filter.value}”.`
          : `The detector has no rules yet, so no event fires anything.${may("write") ? " Press New rule." : ""}`),
      found.length > PAGE && h("div", { class: "bar" }, turn("Previous", from - PAGE), turn("Next", from + PAGE)) || ""));
  }

  function ruleRow(rule) {
    const on = h("input", {
      type: "checkbox", "data-key": `on ${rule.id}`, disabled: !may("write"), checked: rule.enabled, "aria-label": `${rule.name} is on`,
      onchange: async () => {
        unsay();
        try {
          replace(await call("PATCH", `${path}/${rule.id}`, { enabled: on.checked }));
          say(`${rule.name} is ${on.checked ? "on; its history begins anew" : "off"}`);
        } catch (error) {
          on.checked = !on.checked;
          say(error.message, true);
        }
      },
    });
    const text = h("code", { class: "condition" }, rule.text ?? "…");
    if (rule.text === undefined) {
      textOf(rule, signal).then((found) => { rule.text = found; text.textContent = found; }, () => {});
    }
    const whole = h("details", { ontoggle: () => whole.open && open(rule, whole) },
      h("summary", {}, h("strong", {}, rule.name), rule.shadow && h("span", { class: "tag" }, "shadow"),
        rule.timed && h("span", { class: "tag" }, "timed"), text));
    return row(on, String(rule.priority), whole, rule.notify ? "yes" : "",
      h("div", { class: "bar" },
        action("Edit", () => edit(rule), { "data-needs": "write", "data-key": `edit ${rule.id}` }),
        h("a", { class: "button", href: `#/d/${detector.id}/timeline?rule=${rule.id}` }, "Timeline"),
        action("Delete", () => remove(rule), { class: "danger", "data-needs": "write" })));
  }

  function open(rule, whole) {
    whole.querySelector("div")?.remove();
    whole.append(h("div", {},
      rule.description && h("p", { class: "description" }, rule.description),
      rule.labels && h("p", { class: "quiet" }, labelLines(rule.labels).replaceAll("\n", " · ")),
      actsText(rule) && h("p", { class: "quiet" }, actsText(rule)),
      h("ul", { class: "tree" }, conditionTree(rule.condition)),
      h("p", { class: "quiet" }, "Id ", h("code", {}, rule.id)),
      h("details", { class: "folded" }, h("summary", {}, "JSON"), h("pre", {}, JSON.stringify(rule.condition, null, 2))),
      versionsOf(`${path}/${rule.id}`, (changed) => {
        say(`${changed.name} is what it was`);
        replace(changed);
      })));
    const draft = rules.find((other) => other.draftOf === rule.id);
    if (draft?.enabled && rule.enabled) {
      comparisonOf(path, rule, async () => {
        rules = await rulesOf(detector.id, undefined, true);
        say(`${rule.name} acts by its draft now; the draft is the old condition`);
        draw();
      }).then((found) => whole.querySelector("div")?.prepend(found), (error) => say(error.message, true));
    }
  }

  function replace(changed) {
    rules = rules.map((rule) => (rule.id === changed.id ? changed : rule));
    draw();
  }

  const tell = (messages) => say(messages.join("\n"), false, true);
  const names = () => namesRead(rules.map((rule) => rule.condition));

  async function edit(rule) {
    const { source } = await call("GET", `${path}/${rule.id}`);
    const wanted = await editRule({ ...rule, condition: source },
      // An unchanged text is not sent, so that the stored source keeps its comments.
      ({ condition, ...others }) => changeRule(`${path}/${rule.id}`, rule,
        { ...others, ...(condition === source ? {} : { condition }) }, tell), names());
    if (wanted) replace(wanted);
  }

  async function add() {
    const made = await editRule({ name: "", condition: "", notify: false }, (rule) => call("POST", path, rule, undefined, tell), names());
    if (!made) return;
    if (!reading) {
      for await (const page of rulePages(detector.id, undefined, true, rules.at(-1)?.priority)) rules.push(...page);
    }
    draw();
  }

  async function remove(rule) {
    if (!confirm(`Delete the rule “${rule.name}”?`)) return;
    await call("DELETE", `${path}/${rule.id}`);
    rules = rules.filter((other) => other.id !== rule.id);
    draw();
  }

  const rest = readRest();
  if (rules.length < RULES_PAGE) await rest;
  else rest.catch((error) => error.name === "AbortError" || say(error.message, true));
  draw();
  return h("section", {}, h("div", { class: "bar" }, filter, action("New rule", add, { class: "first", "data-needs": "write" })), told, list);
}
