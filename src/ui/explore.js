// The metrics of the store: type, help and unit, and the number of values of each label.

import { NAMES_MAX, ask, metadata, metricNames } from "./api.js";
import { breakable, button, debounced, el, markCurrent, pageLink } from "./dom.js";
import { formatCount, formatNumber, labelName } from "./numbers.js";
import { cardinalityOf } from "./links.js";
import { describe, labelCounts, suggestedQueries } from "./metrics.js";

/** Metrics that are listed at first, and with each "Show more". */
const LISTED_AT_ONCE = 500;
const SERIES_MAX = 10_000;
const VALUES_MAX = 12;

/** The page: { element, title, enter(search), leave(), focus() }. */
export class ExplorePage {
  title = "Metrics";

  /** `open(queries)` shows queries; `go(address)` goes to another part of the page. */
  constructor({ open, go }) {
    Object.assign(this, { open, go, names: [], known: {}, chosen: null, fitting: [] });
    this.input = el("input", {
      type: "search",
      placeholder: "Search names and descriptions",
      "aria-label": "Search metrics",
      oninput: debounced(80, () => this.#list()),
    });
    this.kind = el("select", { "aria-label": "Type", onchange: () => this.#list() });
    this.count = el("p", { class: "hint", role: "status" });
    this.list = el("ul", { class: "metrics", "aria-label": "Metrics" });
    this.more = button("", () => this.#showMore(), { class: "add", hidden: true });
    this.details = el("section", { class: "details", "aria-live": "polite" });
    const side = el(
      "div",
      { class: "side" },
      this.input,
      this.kind,
      this.count,
      this.list,
      this.more,
    );
    this.element = el("div", { class: "explore" }, side, this.details);
  }

  async enter(search) {
    const metric = new URLSearchParams(search).get("metric");
    if (this.names.length === 0 || metric === null) {
      await this.#load();
    }
    this.#choose(metric);
  }

  leave() {
    this.aborter?.abort();
  }

  focus() {
    this.input.focus();
  }

  get search() {
    return this.chosen === null ? "" : `metric=${encodeURIComponent(this.chosen)}`;
  }

  async #load() {
    try {
      [this.names, this.known] = await Promise.all([metricNames(), metadata()]);
    } catch (error) {
      this.details.replaceChildren(el("p", { class: "message", role: "alert" }, error.message));
      return;
    }
    const kinds = [...new Set(this.names.map((name) => describe(name, this.known).type))].sort();
    const { value } = this.kind;
    this.kind.replaceChildren(
      el("option", { value: "" }, "All types"),
      ...kinds.map((kind) => el("option", { value: kind, selected: kind === value }, kind)),
    );
    this.#list();
  }

  #list() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = this.kind.value;
    this.fitting = this.names.filter((name) => {
      const { type, help } = describe(name, this.known);
      const text = `${name} ${help}`.toLowerCase();
      return (kind === "" || kind === type) && words.every((word) => text.includes(word));
    });
    this.list.replaceChildren();
    this.#append();
  }

  /** Adds the next metrics to the list. */
  #append() {
    const from = this.list.children.length;
    const rows = this.fitting.slice(from, from + LISTED_AT_ONCE).map((name) => this.#row(name));
    this.list.append(...rows);
    const [shown, all] = [from + rows.length, this.fitting.length];
    const count =
      this.names.length >= NAMES_MAX ? `more than ${formatNumber(all)}` : formatNumber(all);
    this.count.textContent =
      shown < all ? `The first ${formatNumber(shown)} of ${count} metrics` : `${count} metrics`;
    this.more.hidden = shown >= all;
    this.more.textContent = `Show ${formatNumber(Math.min(LISTED_AT_ONCE, all - shown))} more`;
  }

  #showMore() {
    const from = this.list.children.length;
    this.#append();
    this.list.children[from]?.querySelector("a").focus();
  }

  #row(name) {
    const { type, help } = describe(name, this.known);
    const address = `explore?metric=${encodeURIComponent(name)}`;
    const content = [
      el("span", { class: "word" }, breakable(name)),
      el("span", { class: `kind ${type}` }, type),
      help === "" ? null : el("span", { class: "about" }, help),
    ];
    const current = { "aria-current": name === this.chosen ? "page" : null };
    return el("li", {}, pageLink(content, address, this.go, current));
  }

  async #choose(name) {
    this.aborter?.abort();
    this.chosen = name;
    const links = this.list.querySelectorAll("a");
    markCurrent(links, (link) => link.querySelector(".word").textContent === name);
    this.element.classList.toggle("has-choice", name !== null);
    if (name === null) {
      this.details.replaceChildren(
        el("p", { class: "empty" }, "Choose a metric to see its labels."),
      );
      return;
    }
    this.#describe(name);
    await this.#showLabels(name);
  }

  #describe(name) {
    const { type, help, unit } = describe(name, this.known);
    const queries = suggestedQueries(name, type);
    const facts = [
      ["Type", type],
      ["Unit", unit || "unknown"],
    ];
    this.figures = el("dl", { class: "figures" }, facts.map(fact));
    this.labels = el("div", { role: "status" }, el("p", { class: "hint" }, "Counting series …"));
    this.details.replaceChildren(
      button("‹ All metrics", () => this.go("explore"), { class: "back" }),
      el("h1", {}, breakable(name)),
      el("p", { class: "help" }, help || "No description."),
      this.figures,
      el("h2", {}, "Queries"),
      el(
        "ul",
        { class: "queries" },
        queries.map((query) =>
          el(
            "li",
            {},
            button(query, () => this.open([query]), { class: "query" }),
          ),
        ),
      ),
      el("h2", {}, "Labels"),
      el("p", {}, pageLink("Cardinality by day", cardinalityOf(name), this.go)),
      this.labels,
    );
  }

  async #showLabels(name) {
    const aborter = new AbortController();
    this.aborter = aborter;
    const selector = `{__name__=${JSON.stringify(name)}}`;
    try {
      const dayAgo = Date.now() / 1000 - 86_400;
      const parameters = { "match[]": selector, start: dayAgo, limit: SERIES_MAX };
      const { data, warnings } = await ask("series", parameters, aborter.signal);
      this.#showSeries(name, data, warnings.length > 0);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.labels.replaceChildren(el("p", { class: "message", role: "alert" }, error.message));
      }
    }
  }

  #showSeries(name, series, isCut) {
    const total = isCut ? `more than ${formatCount(series.length)}` : formatCount(series.length);
    this.figures.append(fact(["Series in the last 24 hours", total]));
    const labels = labelCounts(series);
    if (labels.length === 0) {
      const what = series.length === 0 ? "series" : "series with labels";
      this.labels.replaceChildren(el("p", { class: "hint" }, `No ${what} in the last 24 hours.`));
      return;
    }
    const rows = labels.map(({ label, values }) =>
      el(
        "tr",
        {},
        el("td", {}, el("code", { class: "label" }, label)),
        el("td", { class: "number" }, formatCount(values.length)),
        el("td", {}, this.#values(name, label, values)),
      ),
    );
    const heads = ["Label", "Values", "Values with the most series"].map((text) =>
      el("th", { scope: "col" }, text),
    );
    heads[1].className = "number";
    const table = el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
    this.labels.replaceChildren(el("div", { class: "scrolled", tabindex: "0" }, table));
  }

  #values(name, label, values) {
    const shown = values.slice(0, VALUES_MAX).map(([value, count]) => {
      const query = `${name}{${labelName(label)}=${JSON.stringify(value)}}`;
      return button(`${value} (${formatCount(count)})`, () => this.open([query]), {
        class: "value",
        title: query,
      });
    });
    const more = values.length - shown.length;
    return [...shown, more > 0 ? el("span", { class: "hint" }, `and ${more} more`) : ""];
  }
}

function fact([name, value]) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}
