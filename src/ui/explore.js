// The metrics of the store: what they are, and how many values their labels have.

import { ask, metadata, metricNames } from "./api.js";
import { button, debounced, el, isPlainClick, markCurrent } from "./dom.js";
import { formatCount, labelName } from "./numbers.js";
import { describe, labelCounts, suggestedQueries } from "./metrics.js";

const LISTED_MAX = 500;
const SERIES_MAX = 10_000;
const VALUES_MAX = 12;

/** The page: { element, title, enter(search), leave(), focus() }. */
export class ExplorePage {
  title = "Metrics";

  /** `open(queries)` shows queries; `go(address)` goes to another part of the page. */
  constructor({ open, go }) {
    Object.assign(this, { open, go, names: [], known: {}, chosen: null });
    this.input = el("input", {
      type: "search",
      placeholder: "Search names and descriptions",
      "aria-label": "Search metrics",
      oninput: debounced(80, () => this.#list()),
    });
    this.kind = el("select", { "aria-label": "Type", onchange: () => this.#list() });
    this.count = el("p", { class: "hint", role: "status" });
    this.list = el("ul", { class: "metrics", "aria-label": "Metrics" });
    this.details = el("section", { class: "details", "aria-live": "polite" });
    const side = el("div", { class: "side" }, this.input, this.kind, this.count, this.list);
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
    const fitting = this.names.filter((name) => {
      const { type, help } = describe(name, this.known);
      const text = `${name} ${help}`.toLowerCase();
      return (kind === "" || kind === type) && words.every((word) => text.includes(word));
    });
    const shown = fitting.slice(0, LISTED_MAX);
    const more = fitting.length - shown.length;
    this.count.textContent =
      more > 0
        ? `The first ${shown.length} of ${fitting.length} metrics`
        : `${fitting.length} metrics`;
    this.list.replaceChildren(...shown.map((name) => this.#row(name)));
  }

  #row(name) {
    const { type, help } = describe(name, this.known);
    const address = `explore?metric=${encodeURIComponent(name)}`;
    const link = el(
      "a",
      { href: address, "aria-current": name === this.chosen ? "page" : null },
      el("span", { class: "word" }, name),
      el("span", { class: `kind ${type}` }, type),
      help === "" ? null : el("span", { class: "about" }, help),
    );
    link.addEventListener("click", (event) => {
      if (isPlainClick(event)) {
        event.preventDefault();
        this.go(address);
      }
    });
    return el("li", {}, link);
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
      ["Unit", unit || "not told"],
    ];
    this.figures = el("dl", { class: "figures" }, facts.map(fact));
    this.labels = el("div", { role: "status" }, el("p", { class: "hint" }, "Counting series …"));
    this.details.replaceChildren(
      button("‹ All metrics", () => this.go("explore"), { class: "back" }),
      el("h1", {}, name),
      el("p", { class: "help" }, help || "Nobody has described this metric."),
      this.figures,
      el("h2", {}, "Look at it"),
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
      this.#tell(name, data, warnings.length > 0);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.labels.replaceChildren(el("p", { class: "message", role: "alert" }, error.message));
      }
    }
  }

  #tell(name, series, isCut) {
    const total = isCut ? `more than ${formatCount(series.length)}` : formatCount(series.length);
    this.figures.append(fact(["Series in the last 24 hours", total]));
    const labels = labelCounts(series);
    if (labels.length === 0) {
      this.labels.replaceChildren(el("p", { class: "hint" }, "No series, or none with labels."));
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
    const heads = ["Label", "Values", "Most series"].map((text) =>
      el("th", { scope: "col" }, text),
    );
    heads[1].className = "number";
    const table = el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
    this.labels.replaceChildren(el("div", { class: "scrolled" }, table));
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
