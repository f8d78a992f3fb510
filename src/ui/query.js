// The page of queries: one range of time and any number of panels.

import { decode, encode, newPanel } from "./address.js";
import { ask, metricNames } from "./api.js";
import { button, el, select } from "./dom.js";
import { copy } from "./export.js";
import { formatDuration, formatTime, parseDuration } from "./numbers.js";
import { Panel } from "./panel.js";
import { onChange, settings } from "./settings.js";
import { TimePicker } from "./timepicker.js";
import { parseMoment } from "./times.js";

const RANGES = ["5m", "15m", "1h", "3h", "6h", "12h", "1d", "2d", "7d", "30d", "90d", "365d"];
const REFRESHES = [0, 5, 15, 60, 300];
const RANGE_FORMATS = "a duration such as 15m, 2h or 1d12h, or a number of seconds.";
const TIME_FORMATS =
  "a time such as 2026-11-22 05:10 or 2026-11-22T05:10:00Z, now-1h, a Unix timestamp, or nothing for now.";
const RANGE_MS_MIN = 1000;
const RANGE_MS_MAX = 100 * 365 * 86_400_000;

/** Queries of the first visit: the load of this server, from its own metrics. */
const EXAMPLES = {
  rangeMs: 15 * 60_000,
  endMs: null,
  panels: [
    newPanel("sum by (handler) (rate(tessella_http_requests_total[5m]))"),
    newPanel("process_resident_memory_bytes"),
  ],
};

/** Time after which the server has stored its own metrics twice, so that a graph has a line. */
const OWN_METRICS_MS = 16_000;

/** The page: { element, title, enter(search), leave(), focus() }. */
export class QueryPage {
  title = "Query";

  constructor() {
    this.panels = [];
    this.holder = el("div", { class: "panels" });
    this.welcome = el("p", { class: "welcome", hidden: true });
    const add = button("Add a query", () => this.#add(), { class: "add" });
    this.element = el("div", {}, this.#timeBar(), this.welcome, this.holder, add);
    this.state = { panels: [], rangeMs: 3_600_000, endMs: null };
    onChange(() => this.element.isConnected && this.#restyle());
  }

  /** Shows the panels of a query string; examples if it has none. */
  async enter(search) {
    const state = decode(search);
    this.welcome.hidden = true;
    if (state.panels.length > 0) {
      this.#show(state);
    } else if (this.panels.length === 0) {
      await this.#greet();
      this.#keep(true);
    } else {
      this.#keep(true);
    }
    this.#refreshEvery(this.refreshSeconds ?? 0);
    // A link of a result that lies further below keeps its position.
    if (document.activeElement === document.body) {
      this.focus();
    }
  }

  leave() {
    clearInterval(this.timer);
  }

  focus() {
    this.panels[0]?.focus();
  }

  /** The query string of the panels that are shown and of other queries after them. */
  searchWith(queries) {
    const panels = this.state.panels.filter((panel) => panel.expr !== "");
    return encode({ ...this.state, panels: [...panels, ...queries.map((expr) => newPanel(expr))] });
  }

  /** Brings the last query into view. */
  showLast() {
    this.panels.at(-1)?.element.scrollIntoView({ block: "nearest" });
  }

  /** The query string of what is shown. */
  get search() {
    return encode(this.state);
  }

  #timeBar() {
    const shift = (factor) => () => this.#shift(factor);
    const zoom = (factor) => () => this.#setTime(this.state.rangeMs * factor, this.state.endMs);
    this.range = el("input", {
      class: "range",
      "aria-label": "Range of time",
      list: "ranges",
      autocomplete: "off",
      "aria-describedby": "time-error",
      onchange: () => this.#typedRange(),
    });
    const ranges = el(
      "datalist",
      { id: "ranges" },
      RANGES.map((range) => el("option", { value: range })),
    );
    this.end = el("input", {
      class: "end",
      "aria-label": "End of the range",
      placeholder: "now",
      autocomplete: "off",
      title: TIME_FORMATS,
      "aria-describedby": "time-error",
      onchange: () => this.#typedEnd(),
    });
    this.timeError = el("p", {
      class: "time-error",
      id: "time-error",
      role: "alert",
      hidden: true,
    });
    this.told = el("span", { class: "hint all", role: "status" });
    const refreshes = REFRESHES.map((s) => [
      s,
      s === 0 ? "Refresh: off" : `Refresh: ${formatDuration(s * 1000)}`,
    ]);
    const refresh = select("Refresh", refreshes, 0, (value) => this.#refreshEvery(Number(value)));
    return el(
      "div",
      { class: "time", role: "group", "aria-label": "Time" },
      el(
        "div",
        { class: "group" },
        button("Shorter range", zoom(0.5), { sign: "−" }),
        this.range,
        ranges,
        button("Longer range", zoom(2), { sign: "+" }),
      ),
      new TimePicker({
        time: () => this.#times(),
        onPick: (startMs, endMs) => this.#setTime((endMs ?? Date.now()) - startMs, endMs),
      }).element,
      el(
        "div",
        { class: "group" },
        button("Earlier", shift(-0.5), { sign: "‹" }),
        this.end,
        button("Later", shift(0.5), { sign: "›" }),
        button("Now", () => this.#setTime(this.state.rangeMs, null), { class: "now" }),
      ),
      refresh,
      this.told,
      button("Share", () => this.#share(), { title: "Copy the address of this page" }),
      button("Run all", () => this.#runAll()),
      this.timeError,
    );
  }

  async #share() {
    this.told.textContent = await copy(location.href).then(
      () => "Address copied",
      (error) => error.message,
    );
  }

  #typedRange() {
    const ms = parseDuration(this.range.value);
    const isWrong = !(ms >= RANGE_MS_MIN && ms <= RANGE_MS_MAX);
    this.#tellTime(
      this.range,
      isWrong ? `Range "${this.range.value}": expected ${RANGE_FORMATS}` : "",
    );
    if (!isWrong) {
      this.#setTime(ms, this.state.endMs);
    }
  }

  #typedEnd() {
    const text = this.end.value.trim();
    const ms = text === "" || text === "now" ? null : parseMoment(text, Date.now(), settings.isUtc);
    const isWrong = Number.isNaN(ms);
    this.#tellTime(this.end, isWrong ? `End "${text}": expected ${TIME_FORMATS}` : "");
    if (!isWrong) {
      this.#setTime(this.state.rangeMs, ms);
    }
  }

  /** Shows what an input expects, or clears the message for an empty text. */
  #tellTime(input, text) {
    input.setAttribute("aria-invalid", String(text !== ""));
    this.timeError.textContent = text;
    this.timeError.hidden = text === "";
  }

  #shift(factor) {
    const { rangeMs, endMs } = this.state;
    const end = (endMs ?? Date.now()) + factor * rangeMs;
    this.#setTime(rangeMs, end >= Date.now() ? null : end);
  }

  #setTime(rangeMs, endMs) {
    const range = Math.max(RANGE_MS_MIN, Math.min(RANGE_MS_MAX, rangeMs));
    Object.assign(this.state, {
      // Halving and doubling keep to whole seconds, which links can tell.
      rangeMs: Math.round(range / 1000) * 1000,
      endMs: endMs === null ? null : Math.round(endMs / 1000) * 1000,
    });
    this.#showTime();
    this.#keep();
    this.#runAll();
  }

  #showTime() {
    const { rangeMs, endMs } = this.state;
    this.range.value = formatDuration(rangeMs);
    // Longer ranges such as 7m30s are shown in full, next to the arrow of the list.
    this.range.size = Math.max(4, this.range.value.length + 2);
    this.end.value = endMs === null ? "" : formatTime(endMs, settings.isUtc);
    this.#tellTime(this.range, "");
    this.#tellTime(this.end, "");
  }

  #restyle() {
    this.#showTime();
    this.panels.forEach((panel) => panel.run());
  }

  #show(state) {
    this.panels.splice(0).forEach((panel) => panel.remove());
    this.state = { ...state, panels: [] };
    this.#showTime();
    state.panels.forEach((panel) => this.#append(panel));
    this.#runAll();
  }

  async #greet() {
    const hasOwn = await ask("query", { query: "tessella_build_info" }).then(
      ({ data }) => data.result.length > 0,
      () => false,
    );
    if (hasOwn) {
      this.#say(
        "These are examples over this server's own metrics. Change them, or write your own.",
      );
      this.#show(structuredClone(EXAMPLES));
      setTimeout(() => this.element.isConnected && this.#runAll(), OWN_METRICS_MS);
      return;
    }
    const names = await metricNames().catch(() => []);
    this.#say(
      names.length > 0
        ? `This store holds ${names.length} metrics. Write a query, or look through them under Metrics.`
        : "Nothing has been stored yet. Point the remote_write of a Prometheus at /api/v1/write.",
    );
    this.#show({ ...EXAMPLES, rangeMs: 3_600_000, panels: [newPanel()] });
    this.focus();
  }

  #say(text) {
    this.welcome.textContent = text;
    this.welcome.hidden = false;
  }

  #add(expr = "") {
    const panel = this.#append(newPanel(expr));
    this.#keep();
    panel.run();
    panel.focus();
    return panel;
  }

  #append(state) {
    const panel = new Panel(state, {
      time: () => this.#times(),
      onChange: () => this.#keep(),
      onZoom: (startMs, endMs) => this.#setTime(endMs - startMs, endMs),
      onRemove: (removed) => this.#remove(removed),
    });
    this.panels.push(panel);
    this.state.panels.push(state);
    this.holder.append(panel.element);
    this.#number();
    return panel;
  }

  /** Names the panels for screen readers. */
  #number() {
    const nameOf = (index) => (this.panels.length > 1 ? `Query ${index + 1}` : "Query");
    this.panels.forEach(({ element }, index) => element.setAttribute("aria-label", nameOf(index)));
  }

  #remove(panel) {
    const index = this.panels.indexOf(panel);
    this.panels.splice(index, 1);
    this.state.panels.splice(index, 1);
    panel.remove();
    this.#number();
    if (this.panels.length === 0) {
      this.#add();
    } else {
      this.#keep();
    }
  }

  #times() {
    const endMs = this.state.endMs ?? Date.now();
    return { startMs: endMs - this.state.rangeMs, endMs };
  }

  #runAll() {
    this.panels.forEach((panel) => panel.run());
  }

  #refreshEvery(seconds) {
    this.refreshSeconds = seconds;
    clearInterval(this.timer);
    if (seconds > 0) {
      this.timer = setInterval(() => !document.hidden && this.#runAll(), seconds * 1000);
    }
  }

  /** Writes the state into the address, as a step of the browser's history. */
  #keep(isSame = false) {
    const address = `${location.pathname.split("/").at(-1) || "query"}?${this.search}`;
    if (!isSame && location.search === `?${this.search}`) {
      return;
    }
    history[isSame ? "replaceState" : "pushState"](null, "", address);
  }
}
