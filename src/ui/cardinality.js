// The cardinality explorer: series of a day by metric and label, with the day before. Each entry
// leads to its own series: from a metric to its labels, from a label to its values.

import { ask } from "./api.js";
import { breakable, el, pageLink, select } from "./dom.js";
import { figures, nothing, table } from "./facts.js";
import { cardinalityOf, metricOf, narrowed } from "./links.js";
import { changeText } from "./metrics.js";
import { formatAge, formatCount, formatTime } from "./numbers.js";
import { settings } from "./settings.js";

const DAY = 86_400_000;
const LIMITS = ["10", "50", "200", "1000"];

/** The page; the address has the selector (`match`), a label, the day and the limit. */
export async function cardinality({ search, go, signal }) {
  const state = {
    match: search.get("match") ?? "",
    label: search.get("label") ?? "",
    day: search.get("day") ?? dayOf(Date.now()),
    limit: LIMITS.includes(search.get("limit")) ? search.get("limit") : LIMITS[0],
  };
  const show = (changed) => go(addressOf({ ...state, ...changed }));
  const form = formOf(state, show);
  const { match, label, day, limit } = state;
  const wanted = { day, limit, ...(match && { "match[]": match }), ...(label && { label }) };
  let data;
  try {
    data = (await ask("status/cardinality", wanted, signal)).data;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    return [form, el("p", { class: "message", role: "alert" }, error.message)];
  }
  const isToday = day === dayOf(Date.now());
  const more = [
    isToday && (match === "" || metricOf(match) !== null)
      ? created(metricOf(match), signal, go)
      : [],
    match === "" ? head(signal) : [],
  ];
  const whole = await Promise.all(more);
  const facts = figures([
    [`Series on ${day} (UTC)`, formatCount(data.series)],
    [
      "Day before",
      `${formatCount(data.seriesBefore)} (${changeText(data.series, data.seriesBefore)})`,
    ],
    ["Label pairs", formatCount(data.labelPairs)],
  ]);
  if (data.series === 0) {
    return [form, facts, nothing("No series of this day match."), ...whole.flat()];
  }
  return [form, facts, el("div", { class: "lists" }, lists(data, state, go)), ...whole.flat()];
}

function addressOf({ match, label, day, limit }) {
  const today = dayOf(Date.now());
  const search = new URLSearchParams({
    ...(match && { match }),
    ...(label && { label }),
    ...(day !== today && { day }),
    ...(limit !== LIMITS[0] && { limit }),
  });
  return search.size > 0 ? `tsdb-status?${search}` : "tsdb-status";
}

function dayOf(ms) {
  return formatTime(ms, true).slice(0, 10);
}

function formOf(state, show) {
  const match = el("input", {
    value: state.match,
    placeholder: 'Selector, as {job="api"}',
    "aria-label": "Selector",
    class: "wide",
    spellcheck: "false",
  });
  const label = el("input", {
    value: state.label,
    placeholder: "Label",
    "aria-label": "Label whose values are counted",
    spellcheck: "false",
  });
  const day = el("input", {
    type: "date",
    value: state.day,
    max: dayOf(Date.now() + DAY),
    "aria-label": "Day (UTC)",
    required: true,
  });
  const limit = select(
    "Entries of each list",
    LIMITS.map((count) => [count, `${count} entries`]),
    state.limit,
    (chosen) => show({ limit: chosen }),
  );
  const all = { match: "", label: "" };
  const fields = [match, label, day, limit, el("button", { class: "run" }, "Count")];
  const reset =
    state.match === "" && state.label === ""
      ? null
      : el("button", { type: "button", onclick: () => show(all) }, "All series");
  const form = el("form", { class: "filters" }, fields, reset);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show({ match: match.value.trim(), label: label.value.trim(), day: day.value });
  });
  return form;
}

function lists(data, state, go) {
  const to = (changed) => addressOf({ ...state, ...changed });
  const inside = (label, value) => to({ match: narrowed(state.match, label, value) });
  const metric = ({ name }) => inside("__name__", name);
  const focus = ({ name }) => to({ label: name });
  const used = ({ lastQueryTime }) =>
    lastQueryTime === null
      ? "not since the start"
      : formatAge(Math.max(0, Date.now() - Date.parse(lastQueryTime)));
  const shown = [
    ["Metrics with the most series", data.seriesCountByMetricName, metric, "Series", used],
    ["Labels with the most values", data.labelValueCountByLabelName, focus, "Values"],
    ["Labels with the most series", data.seriesCountByLabelName, focus, "Series"],
    [
      "Label pairs with the most series",
      data.seriesCountByLabelValuePair,
      ({ name, label }) => inside(label, name.slice(label.length + 1)),
      "Series",
    ],
  ];
  if (state.label !== "") {
    const title = `Values of ${state.label}`;
    const value = ({ name }) => to({ match: narrowed(state.match, state.label, name), label: "" });
    shown.unshift([title, data.seriesCountByFocusLabelValue, value, "Series"]);
  }
  return shown.map(([title, entries, target, unit, more]) =>
    el("section", {}, el("h2", {}, title), listOf(entries, target, unit, more, go)),
  );
}

function listOf(entries, target, unit, more, go) {
  if (entries.length === 0) {
    return nothing("None.");
  }
  const most = Math.max(1, ...entries.map(({ value }) => value));
  const rows = entries.map((entry) => {
    const { name, value, before } = entry;
    const change = el("span", { class: value > before ? "more" : null }, changeText(value, before));
    const cells = [entryLink(name, target(entry), value / most, go), formatCount(value), change];
    return more ? [...cells, more(entry)] : cells;
  });
  return table(["Name", unit, "Change", ...(more ? ["Last query"] : [])], rows);
}

/** A link with a bar below it, whose length is the share of the largest entry. */
function entryLink(name, address, share, go) {
  const bar = el("span", { class: "share left" });
  bar.style.width = `${share * 100}%`;
  return el("span", {}, pageLink(el("code", {}, breakable(name)), address, go), bar);
}

/** Figures of the head, as on Prometheus' page. */
async function head(signal) {
  const { data } = await ask("status/tsdb", { limit: 1 }, signal);
  const { numSeries, numLabelPairs, chunkCount, minTime, maxTime } = data.headStats;
  const time = (ms) => (minTime <= maxTime ? formatTime(ms, settings.isUtc) : "no samples");
  const facts = [
    ["Series", formatCount(numSeries)],
    ["Label pairs", formatCount(numLabelPairs)],
    ["Open chunks", formatCount(chunkCount)],
    ["From", time(minTime)],
    ["To", time(maxTime)],
  ];
  return [el("h2", {}, "Head"), figures(facts)];
}

/** Series of a metric, or of all, created in each of the last hours; nothing without any count. */
async function created(metric, signal, go) {
  const wanted = metric === null ? {} : { metric };
  const answer = await ask("status/created_series", wanted, signal).catch(() => null);
  if (answer === null || answer.data.since === null) {
    return [];
  }
  const { since, hours, metrics, others } = answer.data;
  const most = Math.max(1, ...hours.map(({ value }) => value));
  const sum = hours.reduce((sum, { value }) => sum + value, 0);
  const bars = hours.map(({ start, value }) => {
    const bar = el("span", { title: `from ${formatTime(start, settings.isUtc)}: ${value}` });
    bar.style.height = `${(value / most) * 100}%`;
    return bar;
  });
  const text = `${formatCount(sum)} in ${hours.length} hours, at most ${formatCount(most)} per hour`;
  const hour = ({ start }) => formatTime(start, settings.isUtc).slice(11, 16);
  const about = `${text}: series that were new, or returned after hours without samples. Counted since `;
  const chart = el(
    "section",
    {},
    el("h2", {}, "Series created per hour"),
    el("div", { class: "hours", role: "img", "aria-label": `Series created: ${text}` }, bars),
    el("div", { class: "hours-ends" }, el("span", {}, hour(hours[0])), el("span", {}, "now")),
    el("p", { class: "hint" }, about, formatTime(since, settings.isUtc).slice(0, 16), "."),
  );
  if (metric !== null || metrics.length === 0) {
    return [el("div", { class: "lists" }, chart)];
  }
  const rows = metrics.map(({ name, value }) => [
    entryLink(name, cardinalityOf(name), value / metrics[0].value, go),
    formatCount(value),
  ]);
  const rest = others > 0 ? [["Metrics that are not counted separately", formatCount(others)]] : [];
  const heading = el("h2", {}, "Metrics with the most created series");
  const list = el("section", {}, heading, table(["Name", "Created"], [...rows, ...rest]));
  return [el("div", { class: "lists" }, chart, list)];
}
