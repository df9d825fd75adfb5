// The relations that are stored with a detector: what there is, and the tuples of one, to search, add and remove.

import { action, field, h, nothing, row, say, table, unsay } from "../shared/dom.js";
import { parseExact } from "../shared/exact.js";
import { count, time } from "../shared/format.js";
import { call } from "../shared/service.js";

const PAGE = 1000;
const SHOWN = 200;

export async function relationsView(detector, query, signal) {
  const path = `detectors/${detector.id}/relations`;
  const named = (name) => `${path}/${encodeURIComponent(name)}`;
  const list = h("div");
  const shown = h("section", { "aria-live": "polite" });
  let chosen = query.get("name");

  async function load() {
    const { relations } = await call("GET", path, undefined, signal);
    list.replaceChildren(relations.length ? table(["Name", "Tuples", "Values in each", "Changed at", ""], relations.map((one) => row(
      h("a", { href: `#/d/${detector.id}/relations?name=${encodeURIComponent(one.name)}` }, one.name),
      one.tuples.toLocaleString("en"),
      one.arity === null ? "" : String(one.arity),
      time(one.changed_ms),
      action("Delete", () => remove(one), { class: "danger", "data-needs": "write" }))))
      : nothing("No relation is stored. Conditions look tuples up in one, as in owns(user, account)."));
    return relations;
  }

  async function remove(one) {
    if (!confirm(`Delete “${one.name}” with ${count(one.tuples, "tuple")}? Conditions that name it are false from then on.`)) return;
    await call("DELETE", named(one.name));
    say(`${one.name} is deleted`);
    if (chosen === one.name) {
      chosen = null;
      shown.replaceChildren();
    }
    await load();
  }

  async function tuplesOf(name) {
    const known = [];
    let next = 0;
    const drawn = h("div");
    const told = h("p", { class: "quiet" });
    const filter = h("input", { type: "search", placeholder: "Find tuples that contain", "aria-label": "Find tuples that contain", oninput: draw });
    const more = action("Load more", page);

    async function page() {
      const found = await call("GET", `${named(name)}?limit=${PAGE}${next ? `&after=${next}` : ""}`, undefined, signal);
      known.push(...found.tuples);
      next = found.next;
      draw();
    }

    function draw() {
      const wanted = filter.value.toLowerCase();
      const found = known.filter((one) => JSON.stringify(one).toLowerCase().includes(wanted));
      const few = found.slice(0, SHOWN);
      told.textContent = count(found.length, "tuple") + (next === null ? "" : ", and more that are not loaded") +
        (few.length < found.length ? `; the first ${few.length} are shown` : "");
      more.hidden = next === null;
      drawn.replaceChildren(few.length ? table(["Tuple", ""], few.map((one) => row(
        h("code", {}, JSON.stringify(one)), action("Remove", () => change({ remove: [one] }), { class: "danger", "data-needs": "write" }))))
        : nothing(known.length ? `No tuple contains “${filter.value}”${next === null ? "." : ", among those that are loaded."}`
          : "It has no tuples."));
    }

    async function change(body) {
      await call("PATCH", named(name), body);
      say(`${name} is changed`);
      const loaded = known.length;
      known.length = 0;
      next = 0;
      // Those that were loaded before are again, so that what is shown stays in its place.
      do await page(); while (next !== null && known.length < loaded);
      await load();
    }

    const added = h("input", { required: true, placeholder: '["ada", "10.0.0.7"]', spellcheck: "false", autocomplete: "off" });
    const add = async (event) => {
      event.preventDefault();
      unsay();
      try {
        await change({ add: [tuple(added.value)] });
        added.value = "";
      } catch (error) {
        say(error.message, true);
      }
    };
    await page();
    shown.replaceChildren(
      h("h2", {}, name),
      h("form", { class: "bar", onsubmit: add, "data-needs": "write" }, field("Tuple", added, "A JSON array, or one value as plain text."), h("button", { type: "submit" }, "Add")),
      filter, told, drawn, more);
  }

  const name = h("input", { required: true, placeholder: "Name of a new relation", "aria-label": "Name" });
  const create = async (event) => {
    event.preventDefault();
    unsay();
    try {
      if ((await load()).some((one) => one.name === name.value)) throw new Error(`There is a relation ${name.value} already.`);
      await call("PUT", named(name.value), { tuples: [] });
      location.hash = `#/d/${detector.id}/relations?name=${encodeURIComponent(name.value)}`;
    } catch (error) {
      say(error.message, true);
    }
  };
  const relations = await load();
  if (relations.some((one) => one.name === chosen)) await tuplesOf(chosen);
  return h("section", {}, h("form", { class: "bar", onsubmit: create, "data-needs": "write" }, name, h("button", { type: "submit" }, "Create")), list, shown);
}

// What was typed: a tuple in JSON, or a text that is its only value.
function tuple(text) {
  if (!text.trim().startsWith("[")) return [text];
  try {
    return parseExact(text);
  } catch {
    throw new Error("The tuple is not JSON.");
  }
}
