// A timeline: when each temporal condition of a rule was true at the last events, as they happen.

import { ruleChoice } from "../shared/choice.js";
import { field, h, nothing } from "../shared/dom.js";
import { count, time } from "../shared/format.js";
import { joined } from "../shared/moments.js";
import { call, follow, rulesOf } from "../shared/service.js";

const KEPT = 500;
const LANE = 46;
// A step that is true is this high; above it is the text of the lane.
const HIGH = 0.5;
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
  if (!rules.length) return nothing("The detector has no rules yet, so there is nothing to watch.");
  const chosen = ruleChoice(rules, query.get("rule"), watch);
  const key = h("input", { placeholder: '{"user": "ada"}', spellcheck: "false", value: query.get("key") ?? "", onchange: watch });
  const told = h("p", { class: "quiet", role: "status" });
  const plot = h("div", { class: "plot", tabindex: 0, role: "group", "aria-label": "Plot: arrow keys go from event to event", onkeydown: step });
  const fired = h("tbody");
  const firedTable = h("div", { class: "scroll", hidden: true }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Key"))), fired));
  const noneFired = nothing("The rule has fired at none of the events that were watched.");
  const at = h("p", { class: "at quiet", "aria-live": "polite" });
  let lanes = [], drawn = [];
  let watching = new AbortController(), begun = false, moments = [], known = [], chart = null, drawnText;
  signal.addEventListener("abort", () => watching.abort());

  async function watch() {
    watching.abort();
    watching = new AbortController();
    const { signal: until } = watching;
    clear();
    const wanted = new URLSearchParams({ rule: chosen.value(), key: key.value.trim() });
    history.replaceState(null, "", `#/d/${detector.id}/timeline?${wanted}`);
    const filter = new URLSearchParams({ key: key.value.trim() || "{}" });
    told.textContent = "Connecting …";
    // What is wrong with the key is said by the timeline.
    const remembered = await before(detector, chosen.value(), key.value.trim() || "{}", until).catch(() => []);
    if (until.aborted) return;
    known = remembered;
    begun = false;
    const path = `detectors/${detector.id}/rules/${chosen.value()}/timeline?${filter}`;
    await follow(() => path, show, (why) => { told.textContent = why; }, until);
  }

  function clear() {
    moments = [];
    chart = null;
    plot.replaceChildren();
    fired.replaceChildren();
    showFired();
  }

  function show(news) {
    // Another condition has other rows.
    if (begun && news.text !== drawnText) {
      known = [];
      clear();
    }
    drawnText = news.text;
    // The timeline was watched before, so `known` is newer than its first events.
    if (!begun && news.moments.length) known = [];
    begun = true;
    const { kept, added } = joined(moments, news.moments, KEPT);
    moments = kept;
    told.textContent = moments.length
      ? `${count(moments.length, "event")} seen since ${time(moments[0].time_ms)}`
      : `Watching. Events appear here as they happen. ${known.length
        ? "Until then, the plot shows since when, at least, events have found the conditions as they are."
        : "Those from before cannot be drawn: a detector remembers times and counts, not events."}`;
    draw(news);
    fired.prepend(...added.filter((moment) => moment.verdict).reverse().map((moment) =>
      h("tr", {}, h("td", {}, time(moment.time_ms)), h("td", {}, h("code", {}, JSON.stringify(moment.key))))));
    while (fired.rows.length > 100) fired.lastChild.remove();
    showFired();
  }

  function showFired() {
    firedTable.hidden = !fired.rows.length;
    noneFired.hidden = !firedTable.hidden;
  }

  // The values at an event: that under the cursor, or the newest.
  function tell() {
    const moment = drawn[chart.cursor.idx ?? drawn.length - 1];
    if (!moment) return;
    const { number, time_ms, key = {} } = moment;
    at.textContent = [time(time_ms), number === undefined ? "before the events that were watched" : `event ${number.toLocaleString("en")}`,
      Object.keys(key).length ? JSON.stringify(key) : ""].filter(Boolean).join(" · ");
    lanes.forEach((lane, place) => {
      const verdict = place ? moment.verdicts[place - 1] : moment.verdict;
      const badge = lane.firstChild;
      badge.textContent = verdict ?? "";
      badge.className = `verdict ${verdict}`;
    });
  }

  // Moves the cursor by an event.
  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !chart) return;
    event.preventDefault();
    const to = Math.min(Math.max((chart.cursor.idx ?? drawn.length - 1) + by, 0), drawn.length - 1);
    chart.setCursor({ left: chart.valToPos(chart.data[0][to], "x"), top: 0 });
  }

  // The conditions, each in its lane.
  function place(laidOut) {
    lanes.forEach((lane, number) => { lane.style.top = `${laidOut.valToPos(lanes.length - number, "y")}px`; });
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
    const times = [];
    drawn = [...past(rows), ...moments];
    for (const moment of drawn) times.push(Math.max(moment.time_ms / 1000, (times.at(-1) ?? -Infinity) + 1e-4));
    const top = labels.length;
    const data = [times, ...labels.map((_, lane) => drawn.map((moment) => {
      const verdict = lane ? moment.verdicts[lane - 1] : moment.verdict;
      return verdict == null ? null : top - lane - 1 + (verdict ? HIGH : 0);
    }))];
    if (chart) {
      chart.setData(data);
      tell();
      return;
    }
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line") } };
    chart = new globalThis.uPlot({
      width: Math.max(280, plot.clientWidth), height: top * LANE + 70, legend: { show: false }, cursor: { y: false },
      // The first and the last label reach beyond the plot.
      padding: [0, 44, 0, 44],
      scales: { y: { range: [-0.2, top] } },
      tzDate: (seconds) => globalThis.uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      axes: [
        { ...axis, space: 100, size: 56, font: "11px system-ui, sans-serif", values: (_, splits) => splits.map(label) },
        { ...axis, size: 0, ticks: { show: false }, splits: () => labels.map((_, lane) => lane), values: () => labels.map(() => "") },
      ],
      hooks: { setCursor: [() => chart && tell()], ready: [place], setSize: [place] },
      series: [{}, ...labels.map((text, lane) => ({
        label: text, stroke: colour(lane ? "--accent" : "--true"), width: 2, points: { show: true, size: 5 }, spanGaps: true,
        paths: globalThis.uPlot.paths.stepped({ align: 1 }),
      }))],
    }, data, plot);
    lanes = labels.map((text) => h("div", { class: "lane" }, h("span", { class: "verdict" }), h("code", { title: text }, text)));
    chart.over.append(...lanes);
    plot.append(at, h("details", { class: "folded" }, h("summary", {}, "Conditions in full"),
      h("ol", {}, labels.map((text) => h("li", {}, h("code", {}, text))))));
    tell();
  }

  new ResizeObserver(() => chart?.setSize({ width: Math.max(280, plot.clientWidth), height: chart.height })).observe(plot);
  watch();
  return h("section", {},
    h("div", { class: "bar" }, field("Rule", chosen.element, "Type a part of its name"), field("Only events with", key, "Values as a JSON object; empty for all")),
    told, plot, h("h2", {}, "Fired"), noneFired, firedTable);
}
