// The odometer over time, as a step line (plotly, in the stylesheet's colours) and as a table.

import { byId, fill, h, table } from "./dom.js";
import { count, percent, up, when } from "./numbers.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
let shown = null;

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Plotly has no time zones, so it gets UTC, as the rest of the page does. */
function utc(iso) {
  return new Date(iso).toISOString().slice(0, 23).replace("T", " ");
}

function series(points, what) {
  if (what === "loss") return [{ name: "ε if stopped now", values: points.map((p) => p.if_stopped_now) }];
  const budgets = [...new Set(points.flatMap((p) => Object.keys(p.used ?? {})))];
  return budgets.map((name) => ({ name, values: points.map((p) => (p.used?.[name] === undefined ? null : p.used[name] * 100)) }));
}

function traces(points, what, along) {
  const x = points.map((p) => (along === "time" ? utc(p.time) : p.sequence));
  const unit = what === "loss" ? "" : " %";
  const dense = points.length > 40;
  return series(points, what).map(({ name, values }, i) => ({
    x,
    y: values,
    name,
    type: "scatter",
    mode: dense ? "lines" : "lines+markers",
    line: { shape: "hv", width: 2, color: colour(`--series-${(i % 5) + 1}`), dash: DASHES[i % DASHES.length] },
    marker: { size: 5 },
    fill: what === "loss" ? "tozeroy" : "none",
    fillcolor: colour("--series-fill"),
    customdata: points.map((p) => p.sequence),
    hovertemplate: `${what === "loss" ? "ε" : "%{fullData.name}"} %{y:.4~g}${unit}<br>entry %{customdata}<extra></extra>`,
    connectgaps: false,
  }));
}

function layout(what, along) {
  const line = colour("--line");
  const axis = { gridcolor: line, linecolor: line, zeroline: false, tickcolor: line, automargin: true };
  return {
    height: 300,
    margin: { l: 52, r: 16, t: 12, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colour("--sans"), size: 12, color: colour("--muted") },
    hoverlabel: { bgcolor: colour("--ink"), font: { color: colour("--paper") }, bordercolor: "rgba(0,0,0,0)" },
    showlegend: what === "used",
    legend: { orientation: "h", y: 1.12, x: 0 },
    xaxis: { ...axis, showgrid: false, type: along === "time" ? "date" : "linear", title: { text: along === "time" ? "time (UTC)" : "entry" } },
    yaxis: { ...axis, rangemode: "tozero", ticksuffix: what === "used" ? " %" : "", title: what === "loss" ? { text: "ε" } : undefined },
    shapes: what === "used" ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 100, y1: 100, line: { color: colour("--bad"), width: 1, dash: "dot" } }] : [],
  };
}

function asTable(points) {
  const budgets = [...new Set(points.flatMap((p) => Object.keys(p.used ?? {})))];
  const columns = [["Entry", "number"], ["Time (UTC)", "time"], ["ε if stopped now", "number"], ...budgets.map((name) => [`${name} used`, "number"])];
  const rows = points.map((p) => [
    count(p.sequence),
    when(p.time),
    up(p.if_stopped_now),
    ...budgets.map((name) => (p.used?.[name] === undefined ? "–" : percent(p.used[name]))),
  ]);
  return h("details", { class: "as-table" }, h("summary", {}, "The same as a table"), h("div", { class: "scroll short", tabindex: 0, role: "region", "aria-label": "History" }, table(columns, rows, "History of the odometer")));
}

let library = null;

/** Plotly, loaded once and only if there is a line to draw. It is large, and the numbers do not wait for it. */
function plotly() {
  library ??= new Promise((resolve, reject) => {
    const source = byId("history").dataset.library;
    document.head.append(h("script", { src: source, onload: () => resolve(window.Plotly), onerror: reject }));
  });
  return library;
}

async function draw() {
  if (shown === null || byId("chart") === null) return;
  const library = await plotly();
  const what = chosen("what");
  const along = chosen("along");
  const chart = byId("chart");
  chart.querySelector(":scope > p")?.remove();
  await library.react(chart, traces(shown, what, along), layout(what, along), { displayModeBar: false, responsive: true });
}

function redraw() {
  draw().catch(() => fill(byId("chart"), h("p", { class: "muted" }, "The chart could not be loaded. The table below has the same points.")));
}

/** Names the budgets without a line: those with a window, and those with a count for each scope. */
function undrawn(points, budgets) {
  const drawn = new Set(points.flatMap((p) => Object.keys(p.used ?? {})));
  const names = budgets.map((each) => each.name).filter((name) => !drawn.has(name));
  if (!names.length) return null;
  return h("p", { class: "small muted undrawn" }, `Not drawn: ${names.join(", ")}. Only lifetime budgets of the whole dataset have a line. The panel Budgets above shows the others.`);
}

/** Shows a HISTORY document: the table at once, and the line when the library is loaded. */
export function showHistory({ points }, states) {
  shown = points;
  const budgets = points.some((p) => Object.keys(p.used ?? {}).length > 0);
  document.querySelector("input[name=what][value=used]").disabled = !budgets;
  if (points.length < 2) {
    const nothing = points[0]?.if_stopped_now === 0;
    const why = nothing ? "Nothing has been charged yet: the line starts with the first charge." : "There are too many entries to draw an exact line. The reading above is current.";
    fill(byId("history"), h("p", { class: "muted" }, why));
    return;
  }
  const last = points.at(-1);
  const label = `Line chart: ε if stopped now is ${up(last.if_stopped_now)} at entry ${last.sequence}. The table below has every point.`;
  const chart = h("div", { id: "chart", role: "img", "aria-label": label }, h("p", { class: "muted" }, "Drawing …"));
  const first = points.find((p) => p.if_stopped_now === null);
  const gap = first ? h("p", { class: "small warning" }, `From entry ${first.sequence} on there is no bound on ε, so the line ends there.`) : null;
  fill(byId("history"), chart, gap, undrawn(points, states), asTable(points));
  redraw();
}

for (const input of document.querySelectorAll("input[name=what], input[name=along]")) input.addEventListener("change", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
