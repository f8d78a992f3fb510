// The rows of a graph by name, with their figures; choosing some hides the others.

import { breakable, button, el } from "./dom.js";
import { summary } from "./matrix.js";
import { formatLabels, formatNumber } from "./numbers.js";
import { colour } from "./palette.js";
import { isDark } from "./settings.js";

const FILTER_FROM = 8;
const COLUMNS = ["last", "mean", "min", "max"];

/** The legend of a graph: { element, show(rows) }. */
export class Legend {
  constructor(graph) {
    this.graph = graph;
    this.element = el("div", { class: "legend" });
    this.chosen = new Set();
    this.sorted = { column: null, isDown: true };
  }

  /** Lists rows: { labels, short, values }. */
  show(rows) {
    this.rows = rows.map((row, index) => ({ ...row, index, ...summary(row.values) }));
    this.chosen = new Set();
    this.filter = "";
    this.list = el("tbody", {});
    this.heads = el("tr", {});
    const table = el("table", {}, el("thead", {}, this.heads), this.list);
    this.element.replaceChildren(this.#controls(), table);
    this.#list();
  }

  /** The rows that are drawn, as `show` got them. */
  shownRows() {
    return this.rows.filter((row) => this.#isShown(row));
  }

  #isShown(row) {
    return this.chosen.size === 0 ? this.#fits(row) : this.chosen.has(row.index);
  }

  #controls() {
    const input = el("input", {
      type: "search",
      placeholder: `Filter ${this.rows.length} series`,
      "aria-label": "Filter series",
      oninput: () => {
        this.filter = input.value.trim().toLowerCase();
        this.chosen = new Set();
        this.#list();
        this.#apply();
      },
    });
    const hint = el("span", { class: "hint" }, "Click shows one alone, Ctrl-click adds or removes");
    const isLong = this.rows.length >= FILTER_FROM;
    return el(
      "div",
      { class: "controls", hidden: this.rows.length < 2 },
      isLong ? input : null,
      hint,
    );
  }

  #list() {
    this.heads.replaceChildren(
      el("th", {}, "Series"),
      ...COLUMNS.map((column) => this.#head(column)),
    );
    this.list.replaceChildren(...this.#ordered().map((row) => this.#row(row)));
  }

  #head(column) {
    const { column: sorted, isDown } = this.sorted;
    const order = sorted === column ? (isDown ? "descending" : "ascending") : "none";
    const sort = () => {
      this.sorted = { column, isDown: sorted === column ? !isDown : true };
      this.#list();
      this.#mark();
    };
    const name = column[0].toUpperCase() + column.slice(1);
    return el("th", { class: `number ${column}`, "aria-sort": order }, button(name, sort));
  }

  #ordered() {
    const { column, isDown } = this.sorted;
    const fitting = this.rows.filter((row) => this.#fits(row));
    if (column === null) {
      return fitting;
    }
    const value = (row) => (Number.isNaN(row[column]) ? -Infinity : row[column]);
    return fitting.sort(
      (a, b) => (isDown ? value(b) - value(a) : value(a) - value(b)) || a.index - b.index,
    );
  }

  #fits(row) {
    return formatLabels(row.labels).toLowerCase().includes(this.filter);
  }

  #row(row) {
    const swatch = el("span", { class: row.isDashed ? "swatch dashed" : "swatch" });
    swatch.style.color = colour(row.colourOf ?? row.index, isDark());
    const name = el("span", { class: "name" }, breakable(row.short));
    const choose = (event) =>
      this.#choose(row.index, event.ctrlKey || event.metaKey || event.shiftKey);
    const title = formatLabels(row.labels);
    return el(
      "tr",
      {
        dataset: { index: row.index },
        onpointerenter: () => this.graph.highlight(row.index),
        onpointerleave: () => this.graph.highlight(-1),
      },
      el(
        "td",
        {},
        el(
          "button",
          { type: "button", "aria-pressed": "false", title, onclick: choose },
          swatch,
          name,
        ),
      ),
      ...COLUMNS.map((column) =>
        el("td", { class: `number ${column}` }, formatNumber(row[column])),
      ),
    );
  }

  #choose(index, isMore) {
    const { chosen } = this;
    if (isMore) {
      if (chosen.size === 0) {
        this.rows.filter((row) => this.#fits(row)).forEach((row) => chosen.add(row.index));
      }
      if (!chosen.delete(index)) {
        chosen.add(index);
      }
    } else {
      this.chosen = chosen.size === 1 && chosen.has(index) ? new Set() : new Set([index]);
    }
    this.#apply();
  }

  #apply() {
    const hidden = this.rows.filter((row) => !this.#isShown(row)).map((row) => row.index);
    this.graph.hide(new Set(hidden));
    this.#mark();
  }

  #mark() {
    for (const line of this.list.children) {
      const index = Number(line.dataset.index);
      const isChosen = this.chosen.has(index);
      line.classList.toggle("off", this.chosen.size > 0 && !isChosen);
      line.querySelector("button").setAttribute("aria-pressed", String(isChosen));
    }
  }
}
