// A timeline: when each temporal condition of a rule was true at the last events, as they happen.

import { ruleChoice } from "../shared/choice.js";
import { field, h } from "../shared/dom.js";
import { count, time } from "../shared/format.js";
import { call, rulesOf, stream } from "../shared/service.js";

const KEPT = 500;
const LANE = 34;
const PAST_MS = 60_000;

// The temporal conditions of which the detector knows since when, at least, events have found them as they are now.
async function before(detector, rule, key, signal) {
  const asked = new URLSearchParams({ rule, key });
  const { node, clock_ms } = await call("GET", `detectors/${detector.id}/state?${asked}`, undefined, signal);
  return rowsOf(node, "", clock_ms);
}

function rowsOf(node, per, now_ms) {
  const inside = node.key ? Object.keys(node.key).map((name) => `per ${name}: `).join("") : per;
  const { verdict, since_ms } = node;
  const own = since_ms < now_ms ? [{ row: per + node.text, verdict, since_ms, now_ms }] : [];
  return [...own, ...(node.nodes ?? []).flatMap((inner) => rowsOf(inner, inside, now_ms))];
}

// The label of a tick: its time, and below the first one of each day its date.
function label(seconds, place, splits) {
  const [date, clock] = time(seconds * 1000).split(" ");
  const sameDay = place && time(splits[place - 1] * 1000).startsWith(date);
  return sameDay ? clock : `${clock}\n${date}`;
}

export async function timelineView(detector, query, signal) {
  const rules = await rulesOf(detector.id, signal);
  if (!rules.length) return h("p", { class: "quiet" }, "There are no rules to watch yet.");
  const chosen = ruleChoice(rules, query.get("rule"), watch);
  const key = h("input", { placeholder: '{"user": "ada"}', spellcheck: "false", value: query.get("key") ?? "", onchange: watch });
  const told = h("p", { class: "quiet", role: "status" });
  const plot = h("div", { class: "plot" });
  const fired = h("tbody");
  let watching = new AbortController(), begun = false, moments = [], known = [], chart = null;
  signal.addEventListener("abort", () => watching.abort());

  async function watch() {
    watching.abort();
    watching = new AbortController();
    const { signal: until } = watching;
    moments = [];
    chart = null;
    plot.replaceChildren();
    fired.replaceChildren();
    const wanted = new URLSearchParams({ rule: chosen.value(), key: key.value.trim() });
    history.replaceState(null, "", `#/d/${detector.id}/timeline?${wanted}`);
    const filter = new URLSearchParams({ key: key.value.trim() || "{}" });
    told.textContent = "Connecting …";
    // What is wrong with the key is said by the timeline.
    const remembered = await before(detector, chosen.value(), key.value.trim() || "{}", until).catch(() => []);
    if (until.aborted) return;
    known = remembered;
    begun = false;
    while (!until.aborted) {
      try {
        await stream(`detectors/${detector.id}/rules/${chosen.value()}/timeline?${filter}`, show, until);
      } catch (error) {
        if (until.aborted) return;
        told.textContent = error.message;
        if (error.status) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  function show(news) {
    if (news.errors) {
      watching.abort();
      told.textContent = news.errors.map((entry) => entry.message).join("\n");
      return;
    }
    // The timeline was watched before, so `known` is newer than its first events.
    if (!begun && news.moments.length) known = [];
    begun = true;
    // After a reconnection the timeline may have begun anew.
    const last = moments.at(-1)?.number ?? 0;
    if (news.moments.length && news.moments[0].number > last + 1) moments = [];
    const added = news.moments.filter((moment) => moment.number > last || !moments.length);
    moments = [...moments, ...added].slice(-KEPT);
    told.textContent = moments.length
      ? `${count(moments.length, "event")} seen since ${time(moments[0].time_ms)}`
      : `Watching. Events appear here as they happen. ${known.length
        ? "Until then, the plot shows since when, at least, events have found the conditions as they are."
        : "Those from before cannot be drawn: a detector remembers times and counts, not events."}`;
    draw(news);
    fired.prepend(...added.filter((moment) => moment.verdict).reverse().map((moment) =>
      h("tr", {}, h("td", {}, time(moment.time_ms)), h("td", {}, h("code", {}, JSON.stringify(moment.key))))));
    while (fired.rows.length > 100) fired.lastChild.remove();
  }

  // The verdicts before the first event, as moments. The distant past is cut off: it would leave no room for the events.
  function past(rows) {
    if (!known.length) return [];
    const now_ms = known[0].now_ms, last_ms = moments.at(-1)?.time_ms ?? now_ms;
    const begin_ms = now_ms - Math.max(PAST_MS, last_ms - now_ms);
    const since = rows.map((row) => known.find((one) => one.row === row)).map((one) =>
      one && { verdict: one.verdict, since_ms: Math.max(one.since_ms, begin_ms) });
    const times = [...new Set([begin_ms, ...since.map((one) => one?.since_ms ?? now_ms), now_ms])].sort((one, two) => one - two);
    return times.map((time_ms) => ({ time_ms, verdicts: since.map((one) => (one && one.since_ms <= time_ms ? one.verdict : null)) }));
  }

  function draw({ rows, text }) {
    if (!moments.length && !known.length) return;
    const labels = [`fires: ${text}`, ...rows];
    if (!globalThis.uPlot) {
      plot.replaceChildren(h("p", { class: "quiet" }, "Plots need uPlot, which the service's extra `console` installs."));
      return;
    }
    // Several events may have the same time: each is drawn a little after the one before.
    const times = [], drawn = [...past(rows), ...moments];
    for (const moment of drawn) times.push(Math.max(moment.time_ms / 1000, (times.at(-1) ?? -Infinity) + 1e-4));
    const top = labels.length;
    const data = [times, ...labels.map((_, lane) => drawn.map((moment) => {
      const verdict = lane ? moment.verdicts[lane - 1] : moment.verdict;
      return verdict == null ? null : top - lane - 1 + (verdict ? 0.7 : 0);
    }))];
    if (chart) {
      chart.setData(data);
      return;
    }
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line") } };
    chart = new globalThis.uPlot({
      width: Math.max(320, plot.clientWidth), height: top * LANE + 60, legend: { show: false }, cursor: { y: false },
      padding: [null, 40, null, 16],
      scales: { y: { range: [-0.2, top] } },
      tzDate: (seconds) => globalThis.uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      axes: [{ ...axis, space: 90, values: (_, splits) => splits.map(label) }, { ...axis, size: 30, splits: () => labels.map((_, lane) => top - lane - 1 + 0.35), values: () => labels.map((_, lane) => String(lane)) }],
      series: [{}, ...labels.map((text, lane) => ({
        label: text, stroke: colour(lane ? "--accent" : "--true"), width: 2, points: { show: true, size: 5 }, spanGaps: true,
        paths: globalThis.uPlot.paths.stepped({ align: 1 }),
      }))],
    }, data, plot);
    plot.append(h("ol", { start: 0 }, labels.map((text) => h("li", {}, h("code", {}, text)))));
  }

  new ResizeObserver(() => chart?.setSize({ width: Math.max(320, plot.clientWidth), height: chart.height })).observe(plot);
  watch();
  return h("section", {},
    h("div", { class: "bar" }, field("Rule", chosen.element, "Type a part of its name"), field("Only events with", key, "Values as a JSON object; empty for all")),
    told, plot, h("h2", {}, "Fired"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Key"))), fired)));
}
