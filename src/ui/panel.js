// One query: the box it is written in, and its answer as a graph, a table or a plan.

import { ApiError, ask, known } from "./api.js";
import { button, debounced, el, newId, select } from "./dom.js";
import { Editor } from "./editor.js";
import { Graph } from "./graph.js";
import { Legend } from "./legend.js";
import { gridRows, sharedLabels } from "./matrix.js";
import { formatDuration, formatLabels } from "./numbers.js";
import { plan } from "./plan.js";
import { stepFor } from "./scales.js";
import { keepQuery } from "./settings.js";
import { table } from "./table.js";

const TABS = { graph: "Graph", table: "Table", explain: "Explain" };
const SERIES_MAX = 1000;
const TABLE_MAX = 10_000;
/** Time without a key after which an edited query is parsed. */
const CHECK_MS = 250;
const STEPS = [0, 1, 5, 10, 15, 30, 60, 300, 900, 3600, 86_400];

/** A query and its answer: { element, state, run(), remove() }. */
export class Panel {
  /**
   * `state` is that of `newPanel`; `time()` gives { startMs, endMs }; of changes, of zooming and of
   * removal `onChange`, `onZoom` and `onRemove` are told.
   */
  constructor(state, { time, onChange, onZoom, onRemove }) {
    Object.assign(this, { state, time, onChange, onRemove, aborter: null });
    this.graph = new Graph({ onZoom });
    this.legend = new Legend(this.graph);
    this.editor = new Editor(state.expr, {
      known,
      onRun: () => this.#submit(),
      onEdit: () => this.#edited(),
    });
    this.check = debounced(CHECK_MS, () => this.#check());
    this.message = el("div", { class: "message", role: "alert", hidden: true });
    this.notes = el("div", { class: "notes", role: "status" });
    this.figures = el("span", { class: "figures-line", role: "status" });
    this.outdated = el(
      "span",
      { class: "outdated", role: "status", hidden: true },
      "Outdated: the query was edited. Enter runs it.",
    );
    this.view = el("div", { class: "view", role: "tabpanel", tabindex: "-1", id: newId("view") });
    this.element = el(
      "section",
      { class: "panel", "aria-label": "Query" },
      this.#head(),
      this.message,
      this.#bar(),
      this.notes,
      this.view,
    );
    this.#choose(state.tab);
  }

  remove() {
    this.aborter?.abort();
    this.graph.remove();
    this.element.remove();
  }

  focus() {
    this.editor.focus();
  }

  /** Asks the server and shows its answer; of several calls the last one counts. */
  async run() {
    this.aborter?.abort();
    const aborter = new AbortController();
    this.aborter = aborter;
    const { tab } = this.state;
    this.check.cancel();
    if (this.state.expr.trim() === "") {
      this.#clear("Write a query to see its values here.");
      return;
    }
    this.element.setAttribute("aria-busy", "true");
    const started = performance.now();
    try {
      const answer = await this.#ask(tab, aborter.signal);
      this.#fail(null);
      this.#show(tab, answer, performance.now() - started);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.#fail(error);
      }
    }
    if (this.aborter === aborter) {
      this.element.removeAttribute("aria-busy");
      this.#markOutdated();
      if (!this.outdated.hidden) {
        this.check();
      }
    }
  }

  #head() {
    const tools = [
      button("Query history", () => this.editor.showRecent(), { sign: "⟲", class: "tool" }),
      button("Format query", () => this.#format(), { sign: "≡", class: "tool" }),
      button("Remove this query", () => this.onRemove(this), { sign: "✕", class: "tool remove" }),
    ];
    const run = button("Run", () => this.#submit(), { class: "run", title: "Run (Enter)" });
    return el(
      "div",
      { class: "head" },
      this.editor.element,
      run,
      el("div", { class: "tools" }, tools),
    );
  }

  #bar() {
    this.tabs = Object.entries(TABS).map(([name, text]) =>
      button(text, () => this.#open(name), {
        role: "tab",
        dataset: { tab: name },
        "aria-controls": this.view.id,
      }),
    );
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Shown as" }, this.tabs);
    list.addEventListener("keydown", (event) => this.#walkTabs(event));
    this.stack = button("Stacked", () => this.#toggleStack(), {
      class: "toggle",
      "aria-pressed": String(this.state.isStacked),
    });
    const steps = [...new Set([...STEPS, this.state.stepMs / 1000])].sort((a, b) => a - b);
    const options = steps.map((step) => [
      step,
      step === 0 ? "Step: auto" : `Step: ${formatDuration(step * 1000)}`,
    ]);
    const step = select("Step between values", options, this.state.stepMs / 1000, (value) => {
      this.state.stepMs = Number(value) * 1000;
      this.#changed();
    });
    this.options = el("div", { class: "options" }, this.stack, step);
    return el("div", { class: "bar" }, list, this.figures, this.outdated, this.options);
  }

  #walkTabs(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const index = this.tabs.indexOf(event.target);
    if (move && index >= 0) {
      const next = this.tabs[(index + move + this.tabs.length) % this.tabs.length];
      next.focus();
      next.click();
    }
  }

  #choose(tab) {
    this.state.tab = tab;
    for (const one of this.tabs) {
      const isChosen = one.dataset.tab === tab;
      one.setAttribute("aria-selected", String(isChosen));
      one.tabIndex = isChosen ? 0 : -1;
    }
    this.options.hidden = tab === "table";
    this.stack.hidden = tab !== "graph";
  }

  #open(tab) {
    if (this.state.tab !== tab) {
      this.#choose(tab);
      this.#changed();
    }
  }

  #toggleStack() {
    this.state.isStacked = !this.state.isStacked;
    this.stack.setAttribute("aria-pressed", String(this.state.isStacked));
    this.#changed();
  }

  #submit() {
    this.state.expr = this.editor.value.trim();
    if (this.state.expr !== "") {
      keepQuery(this.state.expr);
    }
    this.#changed();
  }

  #changed() {
    this.onChange();
    this.run();
  }

  /** Marks the result as outdated while the text differs from its query, and parses the text. */
  #edited() {
    this.#markOutdated();
    this.check();
  }

  #markOutdated() {
    const { expr } = this.state;
    const isOutdated = expr !== "" && this.editor.value.trim() !== expr.trim();
    this.outdated.hidden = !isOutdated;
    this.element.classList.toggle("is-outdated", isOutdated);
  }

  /**
   * Parses the text while it is written: an error replaces the previous one, or clears it. The first
   * error of an edit waits until no suggestions are listed, since the text is incomplete then.
   */
  async #check() {
    const query = this.editor.value;
    const failure = query.trim() === "" ? null : await parseError(query);
    const isPending = this.editor.isOpen && this.message.hidden;
    if (this.editor.value === query && !isPending) {
      this.#tell(failure);
    } else if (isPending && failure !== null) {
      this.check();
    }
  }

  async #format() {
    const query = this.editor.value;
    if (query.trim() === "") {
      return;
    }
    try {
      const { data } = await ask("format_query", { query });
      this.editor.value = data;
      this.#tell(null);
      this.#markOutdated();
    } catch (error) {
      this.#tell(error);
    }
  }

  #ask(tab, signal) {
    const query = this.state.expr;
    const { startMs, endMs } = this.time();
    if (tab === "table") {
      return ask("query", { query, time: endMs / 1000, limit: TABLE_MAX }, signal);
    }
    const stepMs = this.state.stepMs || stepFor(endMs - startMs, this.element.clientWidth || 800);
    // On multiples of the step, so that the server can use what it computed for the last look.
    const start = Math.floor(startMs / stepMs) * stepMs;
    const end = Math.max(start, Math.floor(endMs / stepMs) * stepMs);
    this.grid = {
      startMs: start,
      endMs: end,
      stepMs,
      count: Math.round((end - start) / stepMs) + 1,
    };
    const parameters = { query, start: start / 1000, end: end / 1000, step: stepMs / 1000 };
    return tab === "explain"
      ? ask("query_range", { ...parameters, limit: 1, explain: true, stats: true }, signal)
      : ask("query_range", { ...parameters, limit: SERIES_MAX }, signal);
  }

  #show(tab, { data, warnings, infos }, tookMs) {
    const notes = [
      ...warnings.map((text) => ["warning", text]),
      ...infos.map((text) => ["info", text]),
    ];
    const shown =
      tab === "explain" ? notes.filter(([, text]) => !text.includes("due to limit")) : notes;
    this.notes.replaceChildren(...shown.map(([kind, text]) => el("p", { class: kind }, text)));
    const took = `${Math.round(tookMs)} ms`;
    const count =
      Array.isArray(data.result) && data.resultType !== "scalar" ? data.result.length : 1;
    this.figures.textContent = tab === "explain" ? took : `${count} series · ${took}`;
    if (tab === "table") {
      this.view.replaceChildren(table(data));
    } else if (tab === "explain") {
      this.view.replaceChildren(plan(data.explain, data.stats));
    } else {
      this.#showGraph(data);
    }
  }

  #showGraph({ result }) {
    const { startMs, endMs, stepMs, count } = this.grid;
    const rows = gridRows(result, startMs, stepMs, count);
    if (!rows.some((row) => row.values.some((value) => !Number.isNaN(value)))) {
      const hasHistograms = result.some((series) => series.histograms);
      this.#clear(
        hasHistograms
          ? "These are native histograms. Draw their histogram_quantile(0.9, …), or look at the table."
          : "No data in this range of time.",
      );
      return;
    }
    const shared = sharedLabels(result.map((series) => series.metric));
    const note = Object.keys(shared).length > 0 ? `All: ${formatLabels(shared)}` : "";
    const isShown = this.graph.element.isConnected;
    if (!isShown) {
      this.view.replaceChildren(
        this.graph.element,
        el("p", { class: "shared" }),
        this.legend.element,
      );
    }
    this.view.querySelector(".shared").textContent = note;
    this.graph.show({ startMs, endMs, stepMs, count, rows }, this.state.isStacked);
    this.legend.show(rows);
  }

  #clear(text) {
    this.figures.textContent = "";
    this.notes.replaceChildren();
    this.element.removeAttribute("aria-busy");
    this.#fail(null);
    this.view.replaceChildren(el("p", { class: "empty" }, text));
  }

  /** Shows an error of the last run in place of a result, or none for null. */
  #fail(error) {
    this.#tell(error);
    if (error !== null) {
      this.figures.textContent = "";
      this.notes.replaceChildren();
      this.view.replaceChildren();
    }
  }

  /** Shows an error of the text as it is, or none for null. */
  #tell(error) {
    this.message.hidden = error === null;
    this.message.textContent = error === null ? "" : plainWords(error.message);
    this.editor.mark(error === null ? null : error.message);
  }
}

/** Returns the error of the server's parser for a text, or null. */
async function parseError(query) {
  try {
    await ask("parse_query", { query });
    return null;
  } catch (error) {
    return error instanceof ApiError && error.type === "bad_data" ? error : null;
  }
}

/** An error without what is only of use to programs. */
function plainWords(message) {
  return message.replace(/^invalid parameter "query": /, "");
}
