// One query: its editor, and its result as a graph, a table or an explanation.

import { ApiError, ask, known } from "./api.js";
import { button, debounced, el, newId, select } from "./dom.js";
import { Editor } from "./editor.js";
import { formatDuration } from "./numbers.js";
import { planDetails, queryFigures } from "./plan.js";
import { RangeView } from "./range.js";
import { stepFor } from "./scales.js";
import { keepQuery } from "./settings.js";
import { table } from "./table.js";
import { QueryTree } from "./tree.js";

const TABS = { graph: "Graph", table: "Table", explain: "Explain" };
const MODES = { lines: "Lines", stacked: "Stacked", heatmap: "Heatmap" };
const TABLE_MAX = 10_000;
/** Offsets of the range that a graph is compared with, in ms. */
const OFFSETS = [0, 1, 24, 7 * 24, 28 * 24].map((hours) => hours * 3_600_000);
/** Time without a key after which an edited query is parsed. */
const CHECK_MS = 250;
const STEPS = [0, 1, 5, 10, 15, 30, 60, 300, 900, 3600, 86_400];

/** A query and its answer: { element, state, run(), remove() }. */
export class Panel {
  /**
   * `state` is that of `newPanel`; `time()` gives { startMs, endMs }; `onChange`, `onZoom` and
   * `onRemove` are called after changes, zooming and removal.
   */
  constructor(state, { time, onChange, onZoom, onRemove }) {
    Object.assign(this, { state, time, onChange, onRemove, aborter: null });
    this.tree = new QueryTree();
    this.range = new RangeView({ onZoom, onQuery: (text) => this.#replace(text) });
    this.editor = new Editor(state.expr, {
      known,
      onRun: () => this.#submit(),
      onEdit: () => this.#edited(),
      onClose: () => this.#checkLate(),
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
    this.underEditor = el("div", { class: "under-editor" });
    this.element = el(
      "section",
      { class: "panel" },
      this.#head(),
      this.secondRow,
      this.underEditor,
      this.message,
      this.#bar(),
      this.notes,
      this.view,
    );
    this.#choose(state.tab);
  }

  remove() {
    this.aborter?.abort();
    this.tree.stop();
    this.range.remove();
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
    this.#updateTree();
    const started = performance.now();
    try {
      const answer = await this.#ask(tab, aborter.signal);
      if (this.aborter !== aborter) {
        return;
      }
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
    this.treeButton = button("Query tree", () => this.#toggleTree(), { sign: "⋔", class: "tool" });
    this.secondButton = button("+B: second query in this graph", () => this.#toggleSecond(), {
      ...{ sign: "+B", class: "tool" },
    });
    this.secondRow = el("div", { class: "second" });
    this.#placeSecond();
    const tools = [
      this.secondButton,
      this.treeButton,
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
    this.modes = Object.entries(MODES).map(([mode, text]) =>
      button(text, () => this.#setMode(mode), { class: "toggle", dataset: { mode } }),
    );
    const modes = el(
      "div",
      { class: "group", role: "group", "aria-label": "Drawn as" },
      this.modes,
    );
    this.exemplars = button("Exemplars", () => this.#toggleExemplars(), {
      class: "toggle",
      title: "Show exemplars as points",
    });
    this.modeGroup = modes;
    this.compare = this.#compareChoice();
    this.onlyGraph = [modes, this.exemplars, this.compare, this.secondButton, this.secondRow];
    const steps = [...new Set([...STEPS, this.state.stepMs / 1000])].sort((a, b) => a - b);
    const options = steps.map((step) => [
      step,
      step === 0 ? "Step: auto" : `Step: ${formatDuration(step * 1000)}`,
    ]);
    const step = select("Step between values", options, this.state.stepMs / 1000, (value) => {
      this.state.stepMs = Number(value) * 1000;
      this.#changed();
    });
    this.options = el("div", { class: "options" }, this.onlyGraph, step);
    return el("div", { class: "bar" }, list, this.figures, this.outdated, this.options);
  }

  /** Choice of the range that the graph is compared with. */
  #compareChoice() {
    const offsets = [...new Set([...OFFSETS, this.state.offsetMs])].sort((a, b) => a - b);
    const options = offsets.map((ms) => [
      ms,
      ms === 0 ? "Compare: off" : `Compare: ${formatDuration(ms)} before`,
    ]);
    return select("Compare with", options, this.state.offsetMs, (value) => {
      this.state.offsetMs = Number(value);
      this.#changed();
    });
  }

  /** Shows or hides the box of a second query, which is drawn in the same graph. */
  #toggleSecond() {
    this.state.other = this.state.other === null ? "" : null;
    this.#placeSecond();
    if (this.second) {
      this.second.focus();
    } else {
      this.#changed();
    }
  }

  #placeSecond() {
    const isShown = this.state.other !== null;
    this.secondButton.setAttribute("aria-pressed", String(isShown));
    if (isShown && !this.second) {
      this.second = new Editor(this.state.other, {
        known,
        name: "Second query",
        onRun: () => this.#submit(),
        onEdit: () => this.#edited(),
        onClose: () => this.#checkLate(),
      });
    } else if (!isShown) {
      this.second = null;
    }
    const parts = isShown ? [el("span", { class: "letter" }, "B"), this.second.element] : [];
    this.secondRow.replaceChildren(...parts);
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
    this.onlyGraph.forEach((one) => (one.hidden = tab !== "graph"));
    this.#placeTree();
    this.#showOptions();
  }

  /**
   * Marks the options that hold. Classic histograms, and native ones next to floats, may be heatmaps;
   * native ones alone always are.
   */
  #showOptions() {
    const { mode, tab } = this.state;
    const [isGraph, isNative] = [tab === "graph", this.buckets === "native"];
    const mayBeHeatmap = this.buckets === "classic" || this.buckets === "mixed";
    for (const one of this.modes) {
      const name = one.dataset.mode;
      one.setAttribute("aria-pressed", String(name === mode));
      one.hidden = name === "heatmap" && mode !== "heatmap" && !mayBeHeatmap;
    }
    this.modeGroup.hidden = !isGraph || isNative;
    this.compare.hidden = !isGraph || isNative || mode !== "lines";
    this.exemplars.setAttribute("aria-pressed", String(this.state.hasExemplars));
  }

  #open(tab) {
    if (this.state.tab !== tab) {
      this.#choose(tab);
      this.#changed();
    }
  }

  #setMode(mode) {
    this.state.mode = mode;
    this.#showOptions();
    this.#changed();
  }

  #toggleExemplars() {
    this.state.hasExemplars = !this.state.hasExemplars;
    this.#showOptions();
    this.#changed();
  }

  #toggleTree() {
    this.state.hasTree = !this.state.hasTree;
    this.#placeTree();
    this.#updateTree();
    this.onChange();
  }

  /** The tree is part of the explanation; in other tabs it is shown below the editor. */
  #placeTree() {
    const { hasTree, tab } = this.state;
    this.treeButton.setAttribute("aria-pressed", String(hasTree));
    if (tab !== "explain") {
      this.underEditor.replaceChildren(hasTree ? this.tree.element : "");
    }
  }

  #updateTree() {
    if (this.state.hasTree || this.state.tab === "explain") {
      this.tree.update(this.editor.value.trim(), this.time().endMs);
    } else {
      this.tree.stop();
    }
  }

  /** Runs another query in place of this one. */
  #replace(text) {
    this.editor.value = text;
    this.#submit();
  }

  #submit() {
    this.state.expr = this.editor.value.trim();
    this.state.other = this.second ? this.second.value.trim() : null;
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
    const { expr, other } = this.state;
    const isEdited = (editor, text) => editor && editor.value.trim() !== text.trim();
    const isOutdated =
      expr !== "" && (isEdited(this.editor, expr) || isEdited(this.second, other ?? ""));
    this.outdated.hidden = !isOutdated;
    this.element.classList.toggle("is-outdated", isOutdated);
  }

  /** The boxes of the queries that are shown. */
  #editors() {
    return this.second && this.state.tab === "graph" ? [this.editor, this.second] : [this.editor];
  }

  /**
   * Parses the texts while they are written: an error replaces the previous one, or clears it. The
   * first error of an edit waits until no suggestions are listed, since the text is incomplete then.
   */
  async #check() {
    const editors = this.#editors();
    const texts = editors.map(({ value }) => value);
    const failures = await Promise.all(texts.map(parseError));
    if (editors.some(({ value }, index) => value !== texts[index])) {
      return;
    }
    const at = Math.max(0, failures.findIndex(Boolean));
    const failure = failures[at];
    this.isPending =
      failure !== null && editors.some(({ isOpen }) => isOpen) && this.message.hidden;
    if (!this.isPending) {
      this.#tell(failure, editors[at]);
    }
    if (failures[0] === null) {
      this.#updateTree();
    }
  }

  /** Shows an error that waited for the suggestions to disappear. */
  #checkLate() {
    if (this.isPending) {
      this.isPending = false;
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
    // On multiples of the step, so that the server's result cache applies.
    const start = Math.floor(startMs / stepMs) * stepMs;
    const end = Math.max(start, Math.floor(endMs / stepMs) * stepMs);
    this.grid = {
      startMs: start,
      endMs: end,
      stepMs,
      count: Math.round((end - start) / stepMs) + 1,
    };
    if (tab === "graph") {
      return this.range.load(this.state, this.grid, signal);
    }
    const times = { start: start / 1000, end: end / 1000, step: stepMs / 1000 };
    const explained = { query, ...times, limit: 1, explain: true };
    return ask("query_range", { ...explained, stats: true }, signal).catch((error) => {
      // Statistics count samples, also where summaries are all that is left.
      if (error.message?.includes("only summaries")) {
        return ask("query_range", explained, signal);
      }
      throw error;
    });
  }

  #show(tab, answer, tookMs) {
    const notes = [
      ...answer.warnings.map((text) => ["warning", text]),
      ...answer.infos.map((text) => ["info", text]),
    ];
    const shown =
      tab === "explain" ? notes.filter(([, text]) => !text.includes("due to limit")) : notes;
    this.notes.replaceChildren(...shown.map(([kind, text]) => el("p", { class: kind }, text)));
    const took = `${Math.round(tookMs)} ms`;
    const count = answer.count ?? seriesCount(answer.data);
    const isCounted = tab !== "explain" && count !== null;
    this.figures.textContent = isCounted ? `${count} series · ${took}` : took;
    if (tab === "table") {
      this.view.replaceChildren(table(answer.data, this.state.expr));
    } else if (tab === "explain") {
      const { explain, stats } = answer.data;
      const parts = [queryFigures(stats), this.tree.element, explainHint(), planDetails(explain)];
      this.view.replaceChildren(...parts);
      this.tree.showCosts(this.state.expr, explain);
    } else {
      this.#showGraph(answer);
    }
  }

  #showGraph(answer) {
    this.buckets = answer.buckets;
    this.#showOptions();
    if (!this.range.element.isConnected) {
      this.view.replaceChildren(this.range.element);
    }
    if (!this.range.show(answer)) {
      this.#clear("No data in this range of time.");
    }
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
      // The tree shows which node fails.
      this.view.replaceChildren(this.state.tab === "explain" ? this.tree.element : "");
    }
  }

  /** Shows an error of the text as it is, or none for null. */
  /** Shows the error of a box, or removes that of all boxes. */
  #tell(error, editor = this.editor) {
    this.message.hidden = error === null;
    this.message.textContent = error === null ? "" : plainWords(error.message);
    [this.editor, this.second].forEach((one) => one?.mark(null));
    editor.mark(error === null ? null : error.message);
  }
}

/** The number of series of a result; null for scalars and strings. */
function seriesCount({ resultType, result }) {
  return resultType === "scalar" || resultType === "string" ? null : result.length;
}

function explainHint() {
  const text =
    "Time is the sum over all threads and includes the nodes below; self time excludes them. Series and labels are those at the end of the range.";
  return el("p", { class: "hint" }, text);
}

/** Returns the error of the server's parser for a text, or null. */
async function parseError(query) {
  if (query.trim() === "") {
    return null;
  }
  try {
    await ask("parse_query", { query });
    return null;
  } catch (error) {
    return error instanceof ApiError && error.type === "bad_data" ? error : null;
  }
}

/** An error message without its prefix for programs. */
function plainWords(message) {
  return message.replace(/^invalid parameter "query": /, "");
}
