// The nodes and what is active on them; detectors are moved, and nodes drained.

import { action, drawnAnew, h, nothing, row, say, table } from "../shared/dom.js";
import { bytes, count } from "../shared/format.js";
import { call } from "../shared/service.js";

const SHOWN = 500;
const LOOK_MS = 2000;

export async function clusterView(signal) {
  document.title = "Cluster · Rule Detector console";
  const told = h("p", { class: "failed" });
  const nodes = h("div");
  const summary = h("p", { class: "quiet" });
  const detectors = h("div");

  async function look() {
    const shown = await call("GET", "cluster", undefined, signal);
    if (signal.aborted) return;
    const active = shown.workers.flatMap((worker) => (worker.detectors ?? []).map((one) => ({ ...one, worker })));
    told.textContent = shown.no_room;
    drawnAnew(() => draw(shown, active));
  }

  function draw(shown, active) {
    nodes.replaceChildren(shown.nodes.length
      ? table(["Node", "Address", "CPUs", "Free", "Workers", "Detectors", "State", ""],
        shown.nodes.map((node) => nodeRow(node, shown.workers, active)))
      : nothing("The service does not know its nodes: they have not answered yet."));
    summary.textContent = `${count(active.length, "active detector")}` +
      (active.length > SHOWN ? `, of which ${SHOWN} are shown` : "");
    const takers = shown.nodes.filter((node) => node.alive && !node.draining && node.cpus);
    detectors.replaceChildren(active.length
      ? table(["Detector", "Node", "Waiting", "State", "Move to"],
        active.slice(0, SHOWN).map((one) => detectorRow(one, shown.nodes, takers)))
      : nothing("A detector becomes active with its first request, and rests when it has had none for a while."));
  }

  function nodeRow(node, workers, active) {
    const here = workers.filter((worker) => worker.node === node.id);
    const state = !node.alive ? "dead" : { operator: "drained", ray: "drained by Ray" }[node.draining] ?? "takes workers";
    const button = !node.alive || node.draining === "ray" ? null
      : node.draining ? action("Undrain", () => undrain(node), { "data-key": node.id, "data-needs": "all" })
      : action("Drain", () => drain(node), { class: "danger", "data-key": node.id, "data-needs": "all" });
    return row(
      [node.host, h("code", { class: "id" }, node.id.slice(0, 12))], node.address, node.cpus, node.cpus_free,
      here.length, active.filter((one) => one.worker.node === node.id).length, state, button);
  }

  function detectorRow(one, all, takers) {
    const node = all.find(({ id }) => id === one.worker.node);
    const label = one.name || one.id;
    const to = h("select", { "aria-label": `Node for ${label}` }, h("option", { value: "" }, "the one with most room"),
      takers.filter(({ id }) => id !== one.worker.node).map((other) => h("option", { value: other.id }, nodeName(other))));
    return row(
      h("a", { href: `#/d/${one.id}/state` }, label), node ? nodeName(node) : "", one.waiting ?? 0, bytes(one.state_bytes ?? 0),
      h("div", { class: "bar" }, to, action("Move", () => move(one.id, label, takers.find(({ id }) => id === to.value)),
        { "data-key": one.id })));
  }

  async function drain(node) {
    if (!confirm(`Drain ${nodeName(node)}? All its detectors move to other nodes, and none is started there any more.`)) return;
    await call("POST", `cluster/nodes/${node.id}/drain`);
    say(`${nodeName(node)} is drained; its detectors leave it one after another`);
    await look();
  }

  async function undrain(node) {
    if (!confirm(`Let ${nodeName(node)} take detectors again?`)) return;
    await call("DELETE", `cluster/nodes/${node.id}/drain`);
    say(`${nodeName(node)} takes detectors again`);
    await look();
  }

  async function move(id, label, to) {
    const where = to ? nodeName(to) : "the node with most room";
    if (!confirm(`Move “${label}” to ${where}? Its requests wait meanwhile.`)) return;
    await call("POST", `detectors/${id}/move`, to ? { node: to.id } : {});
    say(`${label} is active on ${where}`);
    await look();
  }

  await look();
  let answersAgain = () => {};
  const timer = setInterval(() => {
    // Drawing the list again would lose the choice of a node.
    if (document.hidden || [...detectors.querySelectorAll("select")].some((to) => to.value || to.matches(":focus"))) return;
    look().then(
      () => answersAgain(),
      (error) => { if (!signal.aborted) answersAgain = say(error.message, true); });
  }, LOOK_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return [h("h1", {}, "Cluster"), told, h("h2", {}, "Nodes"), nodes, h("h2", {}, "Detectors"), summary, detectors];
}

function nodeName(node) {
  return `${node.host} (${node.address})`;
}
