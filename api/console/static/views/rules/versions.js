// What a rule was: its versions, newest first, and a way back to each.

import { action, h, row, say, table } from "../../shared/dom.js";
import { time } from "../../shared/format.js";
import { call } from "../../shared/service.js";
import { actsText, changeRule, labelLines } from "./editor.js";

// Reads the versions once they are looked at. `reverted` is called with the rule that was changed back.
export function versionsOf(path, reverted) {
  const shown = h("div", { "aria-live": "polite" });
  return h("details", { class: "folded versions", ontoggle: load }, h("summary", {}, "Versions"), shown);

  async function load(event) {
    if (!event.target.open) return;
    try {
      const { versions } = await call("GET", `${path}/versions`);
      const now = versions[0].rule;
      shown.replaceChildren(table(["Version", "Since", "By", "Rule", ""], versions.map(({ version, time_ms, token, rule }, number) => row(
        String(version),
        time_ms === null ? "not known" : time(time_ms),
        token === null ? "not known" : token.name || token.id,
        [rule.name !== now.name && h("strong", {}, rule.name), h("code", { class: "condition" }, rule.source), h("small", {}, otherwise(rule))],
        number === 0 ? "present" : action("Revert", async () => reverted(await changeRule(path, now, changes(rule, now))), { "data-needs": "write" })))));
    } catch (error) {
      say(error.message, true);
    }
  }
}

// What a version says besides its condition.
function otherwise(rule) {
  return [!rule.enabled && "off", rule.shadow && "shadow", rule.notify && "notify", rule.description,
    labelLines(rule.labels ?? {}).replaceAll("\n", " · "), actsText(rule)].filter(Boolean).join(" · ");
}

// The request that makes a rule what it was. An unchanged condition and kind are not sent, so that its history stays.
function changes(was, now) {
  const { name, enabled, notify } = was;
  return {
    name, enabled, notify, description: was.description ?? "", labels: was.labels ?? {},
    timed: Boolean(was.timed), every_secs: was.every_secs ?? 0, ...(was.every_by ? { every_by: was.every_by } : {}),
    ...(was.source === now.source ? {} : { condition: was.source }),
    ...(Boolean(was.shadow) === Boolean(now.shadow) ? {} : { shadow: Boolean(was.shadow) }),
  };
}
