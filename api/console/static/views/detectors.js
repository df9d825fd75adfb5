// All detectors: a page at a time, since there may be many thousands.

import { action, h, nothing, row, say, table, unsay } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { call, may } from "../shared/service.js";

const PAGE = 200;

export async function detectorsView(signal) {
  const known = [];
  const list = h("div");
  const told = h("p", { class: "quiet" });
  const filter = h("input", { type: "search", placeholder: "Filter by name or id", oninput: draw });
  const more = action("Load more", load);
  let complete = false;

  async function load() {
    const after = known.length ? `&after=${known.at(-1).id}` : "";
    const page = await call("GET", `detectors?limit=${PAGE}${after}`, undefined, signal);
    known.push(...page);
    complete = page.length < PAGE;
    draw();
  }

  function draw() {
    const wanted = filter.value.toLowerCase();
    const shown = known.filter((one) => `${one.name} ${one.id}`.toLowerCase().includes(wanted));
    told.textContent = `${count(shown.length, "detector")}${complete ? "" : ", and more that are not loaded"}`;
    more.hidden = complete;
    list.replaceChildren(shown.length ? table(["Name", "Id", ""], shown.slice(0, 1000).map((one) => row(
      h("a", { href: `#/d/${one.id}/rules` }, one.name),
      h("code", {}, one.id),
      h("div", { class: "bar", "data-needs": "write" },
        action("Copy", () => copy(one)),
        action("Delete", () => remove(one), { class: "danger" })))))
      : nothing(!known.length ? may("write") ? "There are no detectors yet. Type a name, and press Create."
        : "There are no detectors that your token is for."
        : `No name or id contains “${filter.value}”${complete ? "." : ", among those that are loaded."}`));
  }

  // With all that its rules remember; a million keys take seconds.
  async function copy(one) {
    const name = prompt(`Name of the copy of “${one.name}”, which has its rules and all that they remember`,
      `${one.name} (copy)`.slice(-255));
    if (!name) return;
    const { id } = await call("POST", `detectors/${one.id}/fork`, { name });
    say(`${name} begins where ${one.name} stands`);
    location.hash = `#/d/${id}/rules`;
  }

  async function remove(one) {
    if (!confirm(`Delete “${one.name}” with its rules and everything it remembers?`)) return;
    await call("DELETE", `detectors/${one.id}`);
    known.splice(known.indexOf(one), 1);
    draw();
    say(`${one.name} is deleted`);
  }

  const name = h("input", { required: true, maxlength: 255, placeholder: "Name of a new detector", "aria-label": "Name" });
  const create = async (event) => {
    event.preventDefault();
    unsay();
    try {
      const { id } = await call("POST", "detectors", { name: name.value });
      location.hash = `#/d/${id}/rules`;
    } catch (error) {
      say(error.message, true);
    }
  };
  await load();
  return [
    h("h1", {}, "Detectors"),
    h("div", { class: "bar" }, filter, h("form", { onsubmit: create, "data-needs": "write" }, name, h("button", { type: "submit" }, "Create"))),
    told, list, more,
  ];
}
