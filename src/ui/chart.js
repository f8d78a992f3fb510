// Base of charts over time: canvases, axes, the pointer, zoom by dragging, and exemplars.
//
// The content is drawn once for each change; marks that follow the pointer have a canvas of their own
// above it. What is drawn is left to `Graph` and `Heatmap`.

import { el } from "./dom.js";
import { formatLabels, formatNumber, formatTime } from "./numbers.js";
import { colour } from "./palette.js";
import { timeTicks } from "./scales.js";
import { isDark, settings } from "./settings.js";

const MARGIN = { top: 10, right: 14, bottom: 24 };
const DRAG_MIN = 6;
const EXEMPLAR_RADIUS = 4;
/** Distance in pixels at which the pointer means an exemplar. */
const EXEMPLAR_REACH = 8;

/** All charts of the page: a time that is pointed at in one is marked in all. */
export const charts = new Set();

/**
 * A chart: { element, draw(), remove() }.
 *
 * Subclasses set `data` ({ startMs, endMs, stepMs, count, … }) and implement `measure(height)`, which
 * sets `ticks` ([{ at, label }], `at` from 0 at the bottom to 1 at the top) and `heightOf(value)`;
 * `paint(context)`; `paintMarks(context)`; `nearest(at, y)`; `tipRows()`; `stepHeight(move)` and
 * `inWords(from, to)`.
 */
export class Chart {
  /** `onZoom(startMs, endMs)` is called with the range that was dragged over. */
  constructor({ onZoom }) {
    // `at` is the step under the pointer, `over` what `nearest` found there; null and -1 for none.
    Object.assign(this, { onZoom, data: null, over: -1, at: null, exemplars: [], exemplar: null });
    this.lines = el("canvas", { "aria-hidden": "true" });
    this.marks = el("canvas", { "aria-hidden": "true" });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.element = el(
      "div",
      {
        class: "graph",
        // An image would hide the values in words from screen readers.
        role: "group",
        tabindex: "0",
        "aria-label": "Graph",
        onpointerdown: (event) => this.#press(event),
        onpointermove: (event) => this.#move(event),
        onpointerup: (event) => this.#release(event),
        onpointercancel: () => this.#leave(),
        // A finger leaves with each tap: the tip stays until another one.
        onpointerleave: (event) => event.pointerType !== "touch" && this.#leave(),
        onkeydown: (event) => this.#key(event),
        onblur: () => this.#leave(),
        ondblclick: () => this.#zoomOut(),
      },
      this.lines,
      this.marks,
      this.tip,
    );
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
    charts.add(this);
  }

  remove() {
    this.watcher.disconnect();
    charts.delete(this);
  }

  /** Shows exemplars above the content: [{ ms, value, labels, series }]. */
  showExemplars(exemplars) {
    this.exemplars = exemplars;
    this.draw();
  }

  /** Draws everything; returns at once if there is no data or no room. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (this.data === null || width < 50 || height < 50) {
      return;
    }
    Object.assign(this, { width, height, top: MARGIN.top, bottom: height - MARGIN.bottom });
    this.measure(height);
    this.#measureTime();
    const context = prepared(this.lines, width, height);
    this.#drawAxes(context);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.right - this.left + 1, this.bottom + 1);
    context.clip();
    this.paint(context);
    context.restore();
    this.#drawExemplars(context);
    this.drawMarks();
    const text = (ms) => formatTime(Math.round(ms / 1000) * 1000, settings.isUtc);
    const words = this.inWords(text(this.data.startMs), text(this.data.endMs));
    this.element.setAttribute("aria-label", words);
  }

  /** Draws what follows the pointer: the time, the row, the range that is dragged. */
  drawMarks() {
    if (this.data === null || this.left === undefined) {
      return;
    }
    const context = prepared(this.marks, this.width, this.height);
    if (this.drag) {
      const [from, to] = this.#dragged();
      context.fillStyle = colour(0, isDark());
      context.globalAlpha = 0.18;
      context.fillRect(from, this.top, to - from, this.bottom - this.top);
      context.globalAlpha = 1;
    }
    if (this.at !== null) {
      const x = Math.round(this.x(this.at)) + 0.5;
      context.globalAlpha = 0.5;
      stroke(context, getComputedStyle(this.element).color, [x, this.top, x, this.bottom]);
      context.globalAlpha = 1;
    }
    this.paintMarks(context);
    if (this.exemplar !== null) {
      this.#drawDiamond(context, this.exemplar, EXEMPLAR_RADIUS + 2);
    }
  }

  /** Pixels from the top of a height from 0 to 1. */
  y(height) {
    return this.bottom - height * (this.bottom - this.top);
  }

  #measureTime() {
    const { startMs, endMs, stepMs } = this.data;
    const longest = Math.max(3, ...this.ticks.map(({ label }) => label.length));
    this.left = 18 + 6.6 * longest;
    this.right = this.width - MARGIN.right;
    const scale = (this.right - this.left) / Math.max(1, endMs - startMs);
    this.xOf = (ms) => this.left + (ms - startMs) * scale;
    this.x = (index) => this.left + index * stepMs * scale;
    this.msAt = (x) => startMs + (x - this.left) / scale;
  }

  #drawAxes(context) {
    const style = getComputedStyle(this.element);
    context.font = `12px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = style.color;
    for (const { at, label } of this.ticks) {
      const y = Math.round(this.y(at)) + 0.5;
      stroke(context, style.borderTopColor, [this.left, y, this.right, y]);
      context.fillText(label, this.left - 8, y);
    }
    context.textAlign = "center";
    const { startMs, endMs } = this.data;
    const count = Math.max(2, Math.floor((this.right - this.left) / 90));
    for (const { ms, label } of timeTicks(startMs, endMs, count, settings.isUtc)) {
      const x = Math.round(this.xOf(ms)) + 0.5;
      stroke(context, style.borderTopColor, [x, this.top, x, this.bottom]);
      context.fillText(label, Math.min(x, this.width - label.length * 3.5), this.bottom + 14);
    }
  }

  #drawExemplars(context) {
    this.exemplars.forEach((exemplar) => this.#drawDiamond(context, exemplar, EXEMPLAR_RADIUS));
  }

  /** Position of an exemplar; values beyond the axis lie on its edge. */
  #placeOf({ ms, value }) {
    const height = Math.max(0, Math.min(1, this.heightOf(value)));
    return [this.xOf(ms), this.y(height)];
  }

  #drawDiamond(context, exemplar, radius) {
    const [x, y] = this.#placeOf(exemplar);
    const style = getComputedStyle(this.element);
    context.beginPath();
    context.moveTo(x, y - radius);
    context.lineTo(x + radius, y);
    context.lineTo(x, y + radius);
    context.lineTo(x - radius, y);
    context.closePath();
    context.fillStyle = style.caretColor;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = style.backgroundColor;
    context.stroke();
  }

  #position(event) {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #press(event) {
    if (this.data !== null && event.button === 0 && event.pointerType !== "touch") {
      const [x] = this.#position(event);
      this.drag = { from: x, to: x };
      this.element.setPointerCapture(event.pointerId);
    }
  }

  #move(event) {
    if (this.data === null || this.left === undefined) {
      return;
    }
    const [x, y] = this.#position(event);
    if (this.drag) {
      this.drag.to = x;
    }
    this.#point(x, y);
  }

  #release(event) {
    if (!this.drag) {
      return;
    }
    const [from, to] = this.#dragged();
    this.drag = null;
    this.element.releasePointerCapture(event.pointerId);
    if (to - from >= DRAG_MIN) {
      this.#leave();
      this.onZoom(this.msAt(from), this.msAt(to));
    } else {
      this.drawMarks();
    }
  }

  #dragged() {
    const inside = (x) => Math.max(this.left, Math.min(this.right, x));
    const [a, b] = [inside(this.drag.from), inside(this.drag.to)];
    return [Math.min(a, b), Math.max(a, b)];
  }

  #zoomOut() {
    if (this.data !== null) {
      const { startMs, endMs } = this.data;
      this.onZoom(startMs - (endMs - startMs) / 2, endMs + (endMs - startMs) / 2);
    }
  }

  #leave() {
    this.drag = null;
    charts.forEach((chart) => chart.#mark(null, -1));
  }

  #key(event) {
    const { count } = this.data ?? { count: 0 };
    const jump = event.shiftKey ? 10 : 1;
    const move = { ArrowLeft: -jump, ArrowRight: jump, Home: -count, End: count }[event.key];
    const climb = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (move && count > 0) {
      const from = this.at ?? (move < 0 ? count : -1);
      this.#read(Math.max(0, Math.min(count - 1, from + move)), 0);
    } else if (climb && this.at !== null) {
      this.#read(this.at, climb);
    } else if (event.key === "e" && this.exemplars.length > 0) {
      this.#readExemplar();
    } else if (event.key === "Escape") {
      this.#leave();
    } else if (event.key === "-") {
      this.#zoomOut();
    } else if (event.key === "+" && this.at !== null) {
      const { startMs, endMs, stepMs } = this.data;
      const [middle, quarter] = [startMs + this.at * stepMs, (endMs - startMs) / 4];
      this.onZoom(middle - quarter, middle + quarter);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Points at a step by keyboard, at the row `climb` above the last one. */
  #read(at, climb) {
    const height = this.stepHeight(at, climb);
    if (height !== null) {
      this.#point(this.x(at), this.y(Number.isFinite(height) ? height : 0.5));
    }
  }

  /** Points at the exemplar after the last one by keyboard, in the order of time. */
  #readExemplar() {
    const inOrder = [...this.exemplars].sort((a, b) => a.ms - b.ms);
    const next = inOrder[(inOrder.indexOf(this.exemplar) + 1) % inOrder.length];
    const [x, y] = this.#placeOf(next);
    this.#point(x, y);
    // Another one may be at the same place.
    this.#mark(this.at, this.over, next);
    this.#showTip(x, y);
  }

  /** Shows what lies at a position, in other charts the time alone. */
  #point(x, y) {
    const { startMs, stepMs, count } = this.data;
    const ms = this.msAt(Math.max(this.left, Math.min(this.right, x)));
    const at = Math.max(0, Math.min(count - 1, Math.round((ms - startMs) / stepMs)));
    this.#mark(at, this.nearest(at, y), this.#exemplarAt(x, y));
    this.#showTip(x, y);
    for (const chart of charts) {
      if (chart !== this && chart.data !== null && chart.left !== undefined) {
        const index = Math.round((ms - chart.data.startMs) / chart.data.stepMs);
        chart.#mark(index >= 0 && index < chart.data.count ? index : null, -1);
      }
    }
  }

  #exemplarAt(x, y) {
    let [found, least] = [null, EXEMPLAR_REACH];
    for (const exemplar of this.exemplars) {
      const [atX, atY] = this.#placeOf(exemplar);
      const away = Math.hypot(atX - x, atY - y);
      if (away <= least) {
        [found, least] = [exemplar, away];
      }
    }
    return found;
  }

  #mark(at, over, exemplar = null) {
    const hasChanged =
      this.at !== at || this.over !== over || this.exemplar !== exemplar || this.drag;
    Object.assign(this, { at, over, exemplar });
    this.tip.hidden = true;
    if (hasChanged) {
      this.drawMarks();
    }
  }

  #showTip(x, y) {
    const { startMs, stepMs } = this.data;
    const ms = this.exemplar?.ms ?? startMs + this.at * stepMs;
    const rows = this.exemplar === null ? this.tipRows() : exemplarRows(this.exemplar);
    this.tip.replaceChildren(
      el("div", { class: "when" }, formatTime(Math.round(ms), settings.isUtc)),
      ...rows,
    );
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    const isLeft = x + 20 + offsetWidth > this.width;
    this.tip.style.left = `${Math.max(0, isLeft ? x - 16 - offsetWidth : x + 16)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y - 20, this.height - offsetHeight))}px`;
  }
}

function exemplarRows({ value, labels, series }) {
  const pair = ([name, text]) =>
    el("div", { class: "row" }, el("span", {}, name), el("span", { class: "value name" }, text));
  return [
    el(
      "div",
      { class: "row over" },
      el("span", {}, "Exemplar"),
      el("span", { class: "value" }, formatNumber(value)),
    ),
    ...Object.entries(labels).map(pair),
    el("div", { class: "more" }, formatLabels(series)),
  ];
}

/** A row of the tip: a square with the colour of the series, a name and a value. */
export function tipRow(colour, name, value, { isOver = false, isDashed = false } = {}) {
  const swatch = el("span", { class: isDashed ? "swatch dashed" : "swatch" });
  swatch.style.color = colour;
  return el(
    "div",
    { class: isOver ? "row over" : "row" },
    swatch,
    el("span", { class: "name" }, name),
    el("span", { class: "value" }, value),
  );
}

/** A cleared canvas of a size in pixels of the page. */
function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function stroke(context, style, [x, y, toX, toY]) {
  context.strokeStyle = style;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}
