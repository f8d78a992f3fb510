// The cardinality explorer: series of a day by metric and label, with the day before. Each entry
// leads to its own series: from a metric to its labels, from a label to its values.

import { ask } from "./api.js";
import { el, pageLink, select } from "./dom.js";
import { figures, nothing, table } from "./facts.js";
import { narrowed } from "./links.js";
import { changeText } from "./metrics.js";
import { formatAge, formatCount, formatTime } from "./numbers.js";
import { settings } from "./settings.js";

const DAY = 86_400_000;
const LIMITS = ["10", "50", "200", "1000"];
const HOURS = 24;
const CREATED = "increase(tessella_storage_series_created_total[1h])";

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
  const whole = match === "" ? await Promise.all([head(signal), created(signal, go)]) : [];
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
      ? "never"
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
  return el("span", {}, pageLink(el("code", {}, name), address, go), bar);
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

/** Series created per hour, by the server's own metrics; nothing without these. */
async function created(signal, go) {
  const end = Math.floor(Date.now() / 60_000) * 60;
  const range = { query: CREATED, start: end - (HOURS - 1) * 3600, end, step: 3600 };
  const answer = await ask("query_range", range, signal).catch(() => null);
  const values = answer?.data.result[0]?.values ?? [];
  if (values.length === 0) {
    return [];
  }
  const counts = values.map(([time, value]) => [time * 1000, Math.round(Number(value))]);
  const most = Math.max(1, ...counts.map(([, count]) => count));
  const bars = counts.map(([time, count]) => {
    const bar = el("span", { title: `up to ${formatTime(time, settings.isUtc)}: ${count}` });
    bar.style.height = `${(count / most) * 100}%`;
    return bar;
  });
  const name = `Series created per hour, the last ${counts.length} hours, at most ${formatCount(most)}`;
  const address = `query?${new URLSearchParams({ "g0.expr": CREATED, "g0.range_input": "1d" })}`;
  return [
    el("h2", {}, "Series created per hour"),
    el("div", { class: "bars hours", role: "img", "aria-label": name }, bars),
    el("p", { class: "hint" }, `At most ${formatCount(most)}. `, pageLink("Graph", address, go)),
  ];
}
