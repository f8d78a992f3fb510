// Active queries, which can be canceled, and the costs of queries since the start of the server.

import { ask, cancelQuery } from "./api.js";
import { button, el, pageLink, select } from "./dom.js";
import { figures, nothing } from "./facts.js";
import { queryAddress } from "./links.js";
import { formatAge, formatBytes, formatCount, formatSeconds, formatTime } from "./numbers.js";
import { settings } from "./settings.js";
import { since } from "./table.js";

const LIMITS = ["20", "100", "1000"];

/** Columns of the top queries: heading, order of the API, text of a query's value. */
const COLUMNS = [
  ["Count", "count", ({ count }) => formatCount(count)],
  ["Total time", "seconds", ({ seconds }) => formatSeconds(seconds)],
  ["Mean", null, ({ seconds, count }) => formatSeconds(seconds / count)],
  ["Max", null, ({ secondsMax }) => formatSeconds(secondsMax)],
  ["Samples", "samples", ({ samples }) => formatCount(samples)],
  ["Bytes", "bytes", ({ bytes }) => formatBytes(bytes)],
  ["Failed", null, ({ failures }) => formatCount(failures)],
  ["Last", null, ({ lastTime }) => ago(lastTime)],
];

/** The queries with the highest costs: `?sort=` and `?limit=` in the address. */
export async function topQueries({ search, go, signal }) {
  const orders = COLUMNS.map(([, order]) => order).filter(Boolean);
  const sort = orders.includes(search.get("sort")) ? search.get("sort") : "seconds";
  const limit = LIMITS.includes(search.get("limit")) ? search.get("limit") : LIMITS[0];
  const { data } = await ask("status/top_queries", { sort, limit }, signal);
  const show = (changed) => go(`top-queries?${new URLSearchParams({ sort, limit, ...changed })}`);
  const facts = figures([
    ["Queries", `${formatCount(data.queries.length)} of ${formatCount(data.count)}`],
    ["Counted since", since(Date.parse(data.since))],
  ]);
  const rows = select(
    "Number of queries",
    LIMITS.map((count) => [count, `${count} queries`]),
    limit,
    (chosen) => show({ limit: chosen }),
  );
  const tools = el("div", { class: "tools-line" }, facts, rows);
  if (data.queries.length === 0) {
    return [tools, nothing("No queries since the start of the server.")];
  }
  return [tools, topTable(data.queries, sort, show, go)];
}

function topTable(queries, sort, show, go) {
  const heads = COLUMNS.map(([name, order]) => {
    const sorted = { "aria-sort": order === sort ? "descending" : null };
    const head = order === null ? name : button(name, () => show({ sort: order }));
    return el("th", { scope: "col", class: "number", ...sorted }, head);
  });
  const rows = queries.map((query) => {
    const cells = COLUMNS.map(([, , text]) => el("td", { class: "number" }, text(query)));
    return el("tr", {}, el("td", {}, queryText(query, go)), cells);
  });
  return queryTable(heads, rows);
}

function queryTable(heads, rows) {
  const first = el("th", { scope: "col" }, "Query");
  const whole = el("table", {}, el("thead", {}, el("tr", {}, first, heads)), el("tbody", {}, rows));
  return el("div", { class: "scrolled queries-list", tabindex: "0" }, whole);
}

/**
 * The text of a query, with links to the query page, and with a button if there is one. A lookup has
 * no times, and no plan.
 */
function queryText(query, go, pressed = null) {
  const link = (text, tab, name) =>
    pageLink(text, queryAddress(query, tab), go, { "aria-label": `${name} ${query.query}` });
  const isQuery = query.time !== undefined || query.start !== undefined;
  const links = isQuery
    ? [link("Explain", "explain", "Explain"), link("Graph", "graph", "Graph of")]
    : [];
  const tenants = query.tenants ? el("span", { class: "hint" }, `tenant ${query.tenants}`) : null;
  const line = el("span", { class: "links" }, links, tenants, pressed);
  return [el("code", { class: "query-text" }, query.query), line];
}

/** The queries that wait, run or send their response. */
export async function activeQueries({ go, signal, refresh }) {
  const [{ data }, { data: features }] = await Promise.all([
    ask("status/active_queries", {}, signal),
    ask("features", {}, signal),
  ]);
  const answer = el("p", { class: "hint", role: "status" });
  const tools = el(
    "div",
    { class: "tools-line" },
    el("p", { class: "hint" }, `${formatCount(data.length)} active, at ${clock()}`),
    button("Refresh", refresh),
  );
  if (data.length === 0) {
    return [tools, nothing("No active queries.")];
  }
  const canCancel = features.api?.admin === true;
  const cancel = async (query, pressed) => {
    pressed.disabled = true;
    try {
      await cancelQuery(query.id);
      refresh();
    } catch (error) {
      answer.textContent = `Not canceled: ${error.message}`;
      pressed.disabled = false;
    }
  };
  const note = canCancel
    ? null
    : el("p", { class: "hint" }, "Queries can be canceled with --web.enable-admin-api.");
  return [tools, answer, activeTable(data, canCancel ? cancel : null, go), note].filter(Boolean);
}

function activeTable(queries, cancel, go) {
  const names = ["State", "Age", "Client", "Series", "Samples", "Memory", "Reads"];
  const heads = names.map((name) => el("th", { scope: "col", class: "number" }, name));
  const rows = queries.map((query) => {
    const { cost } = query;
    const texts = [
      query.state,
      formatSeconds(query.ageSeconds),
      query.user === "" ? query.client : `${query.user} (${query.client})`,
      formatCount(cost.series),
      formatCount(cost.samples),
      formatBytes(cost.memoryBytes),
      formatCount(cost.objectStoreReads),
    ];
    const cells = texts.map((text) => el("td", { class: "number" }, text));
    const properties = { "aria-label": `Cancel ${query.query}` };
    const pressed =
      cancel === null ? null : button("Cancel", () => cancel(query, pressed), properties);
    return el("tr", {}, el("td", {}, queryText(query, go, pressed)), cells);
  });
  return queryTable(heads, rows);
}

function ago(time) {
  return formatAge(Math.max(0, Date.now() - Date.parse(time)));
}

function clock() {
  return formatTime(Math.floor(Date.now() / 1000) * 1000, settings.isUtc).slice(11);
}
