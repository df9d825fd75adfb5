// A field in which one of many rules is chosen by typing a part of its name.

import { h } from "./dom.js";

const OFFERED = 50;
let made = 0;

// `changed` is called when another rule is chosen. With `none`, a text that says so, choosing no rule is allowed.
export function ruleChoice(rules, chosen, changed, none) {
  const named = labels(rules);
  const list = h("datalist", { id: `rules-${made++}` });
  const input = h("input", {
    list: list.id, placeholder: none ?? "Type a part of a name", autocomplete: "off", spellcheck: "false",
    "aria-label": "Rule", oninput: () => { offer(); take(); }, onfocus: offer, onchange: check,
  });
  const first = rules.find((rule) => rule.id === chosen) ?? (none === undefined ? rules[0] : undefined);
  let value = first?.id ?? "";
  if (first) input.value = [...named].find(([, id]) => id === first.id)[0];

  function offer() {
    const wanted = input.value.toLowerCase();
    const found = [];
    for (const label of named.keys()) {
      if (label.toLowerCase().includes(wanted) && found.push(label) === OFFERED) break;
    }
    // If the text matches only the rule that is already chosen, offer the others too.
    const offered = found.length === 1 && found[0] === input.value ? [...named.keys()].slice(0, OFFERED) : found;
    list.replaceChildren(...offered.map((label) => h("option", { value: label })));
  }

  function take() {
    const id = input.value === "" && none !== undefined ? "" : named.get(input.value);
    input.setCustomValidity(id === undefined ? "No rule has this name" : "");
    if (id === undefined || id === value) return;
    value = id;
    changed?.();
  }

  function check() {
    take();
    input.reportValidity();
  }

  return { element: h("span", {}, input, list), value: () => value };
}

// The rules' ids by label: the name, with the id behind it if another rule has the name.
function labels(rules) {
  const found = new Map();
  for (const { name, id } of rules) {
    const label = name.replace(/\s+/g, " ").trim();
    found.set(label === "" || found.has(label) ? `${label} ${id}` : label, id);
  }
  return found;
}
