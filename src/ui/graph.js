// Series over time, drawn on a canvas: lines or areas on each other, zoomed by dragging, with the
// values under the pointer.
//
// Lines are drawn once for each change; what follows the pointer has a canvas of its own above.

import { linePoints, stacked } from "./decimate.js";
import { el } from "./dom.js";
import { formatLabels, formatNumber, formatTick, formatTime } from "./numbers.js";
import { colour } from "./palette.js";
import { axisBounds, timeTicks, valueTicks } from "./scales.js";
import { isDark, settings } from "./settings.js";

const MARGIN = { top: 10, right: 14, bottom: 24 };
const TIP_ROWS_MAX = 10;
const DRAG_MIN = 6;

/** All graphs of the page; what is pointed at in one is marked in all. */
const graphs = new Set();

/** A graph: { element, show(data, isStacked), hide(indices), highlight(index), remove() }. */
export class Graph {
  /** `onZoom(startMs, endMs)` is told what has been dragged over. */
  constructor({ onZoom }) {
    Object.assign(this, {
      onZoom,
      data: null,
      isStacked: false,
      hidden: new Set(),
      over: -1,
      at: null,
    });
    this.lines = el("canvas", { "aria-hidden": "true" });
    this.marks = el("canvas", { "aria-hidden": "true" });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.element = el(
      "div",
      {
        class: "graph",
        role: "img",
        tabindex: "0",
        "aria-label": "Graph",
        onpointerdown: (event) => this.#press(event),
        onpointermove: (event) => this.#move(event),
        onpointerup: (event) => this.#release(event),
        onpointercancel: () => this.#leave(),
        onpointerleave: () => this.#leave(),
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
    graphs.add(this);
  }

  remove() {
    this.watcher.disconnect();
    graphs.delete(this);
  }

  /** Shows `data`: { startMs, endMs, stepMs, count, rows: [{ labels, values }] }. */
  show(data, isStacked) {
    Object.assign(this, { data, isStacked, hidden: new Set(), over: -1, at: null });
    this.draw();
  }

  /** Leaves out the rows of these indices. */
  hide(hidden) {
    this.hidden = hidden;
    this.draw();
  }

  /** Draws a row above the others; -1 for none. */
  highlight(index) {
    this.over = index;
    this.#drawMarks();
  }

  /** Draws everything; returns at once where there is nothing to draw on. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (this.data === null || width < 50 || height < 50) {
      return;
    }
    this.#measure(width, height);
    const context = prepared(this.lines, width, height);
    this.#drawAxes(context);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.right - this.left + 1, this.bottom + 1);
    context.clip();
    if (this.isStacked) {
      this.#drawAreas(context);
    } else {
      // Thin lines are drawn several times as fast, and many of them are told apart better.
      const width = this.visible.length > 30 ? 1 : 1.5;
      this.visible.forEach((index) => this.#drawLine(context, index, width));
    }
    context.restore();
    this.#drawMarks();
    this.element.setAttribute("aria-label", this.#inWords());
  }

  /** Scales for what is visible. */
  #measure(width, height) {
    const { rows, startMs, endMs, stepMs, count } = this.data;
    this.visible = rows.map((_, index) => index).filter((index) => !this.hidden.has(index));
    const values = this.visible.map((index) => rows[index].values);
    this.areas = this.isStacked ? stacked(values, count) : null;
    const shown = this.areas ? this.areas.flatMap(({ low, high }) => [low, high]) : values;
    const [min, max] = extremes(shown);
    [this.low, this.high] = axisBounds(min, max, this.isStacked);
    this.axis = valueTicks(this.low, this.high, Math.max(2, Math.floor(height / 45)));
    const labels = this.axis.ticks.map((tick) => formatTick(tick, this.axis.step));
    this.labels = labels;
    this.left = 18 + 6.6 * Math.max(3, ...labels.map((label) => label.length));
    this.right = width - MARGIN.right;
    this.bottom = height - MARGIN.bottom;
    this.width = width;
    this.height = height;
    const scaleX = (this.right - this.left) / Math.max(1, endMs - startMs);
    const scaleY = (this.bottom - MARGIN.top) / (this.high - this.low);
    this.xOf = (ms) => this.left + (ms - startMs) * scaleX;
    this.x = (index) => this.left + index * stepMs * scaleX;
    this.y = (value) => this.bottom - (value - this.low) * scaleY;
    this.msAt = (x) => startMs + (x - this.left) / scaleX;
  }

  #drawAxes(context) {
    const style = getComputedStyle(this.element);
    context.font = `12px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.lineWidth = 1;
    context.textAlign = "right";
    this.axis.ticks.forEach((tick, index) => {
      const y = Math.round(this.y(tick)) + 0.5;
      stroke(context, style.borderTopColor, [this.left, y, this.right, y]);
      context.fillStyle = style.color;
      context.fillText(this.labels[index], this.left - 8, y);
    });
    context.textAlign = "center";
    const count = Math.max(2, Math.floor((this.right - this.left) / 90));
    for (const { ms, label } of timeTicks(
      this.data.startMs,
      this.data.endMs,
      count,
      settings.isUtc,
    )) {
      const x = Math.round(this.xOf(ms)) + 0.5;
      stroke(context, style.borderTopColor, [x, MARGIN.top, x, this.bottom]);
      context.fillStyle = style.color;
      context.fillText(label, Math.min(x, this.width - label.length * 3.5), this.bottom + 14);
    }
  }

  #drawLine(context, index, width) {
    const points = linePoints(this.data.rows[index].values, this.x, this.y);
    context.strokeStyle = context.fillStyle = colour(index, isDark());
    context.lineWidth = width;
    context.beginPath();
    let isOpen = false;
    for (let at = 0; at < points.length; at += 2) {
      const [x, y] = [points[at], points[at + 1]];
      if (x !== x) {
        isOpen = false;
      } else if (isOpen) {
        context.lineTo(x, y);
      } else {
        isOpen = true;
        context.moveTo(x, y);
        // A point without neighbours would leave no trace.
        if (!(points[at + 2] >= x)) {
          context.arc(x, y, width, 0, 2 * Math.PI);
        }
      }
    }
    context.stroke();
  }

  #drawAreas(context) {
    const stride = Math.max(1, Math.floor(this.data.count / Math.max(1, this.right - this.left)));
    this.visible.forEach((index, position) => {
      const { low, high } = this.areas[position];
      context.fillStyle = context.strokeStyle = colour(index, isDark());
      context.lineWidth = 1;
      const [lowAt, highAt] = [(at) => this.y(low[at]), (at) => this.y(high[at])];
      for (const run of runs(high)) {
        drawArea(context, run, stride, this.x, lowAt, highAt);
      }
    });
  }

  /** What follows the pointer: the time, the row that is meant, the range that is dragged. */
  #drawMarks() {
    if (this.data === null || !this.visible) {
      return;
    }
    const context = prepared(this.marks, this.width, this.height);
    const { color } = getComputedStyle(this.element);
    if (this.drag) {
      const [from, to] = this.#dragged();
      context.fillStyle = colour(0, isDark());
      context.globalAlpha = 0.18;
      context.fillRect(from, MARGIN.top, to - from, this.bottom - MARGIN.top);
      context.globalAlpha = 1;
    }
    if (this.over >= 0 && !this.isStacked && !this.hidden.has(this.over)) {
      this.#drawLine(context, this.over, 3.5);
    }
    if (this.at !== null) {
      const x = Math.round(this.x(this.at)) + 0.5;
      context.globalAlpha = 0.5;
      stroke(context, color, [x, MARGIN.top, x, this.bottom]);
      context.globalAlpha = 1;
      this.#drawDots(context, x);
    }
  }

  #drawDots(context, x) {
    const dots =
      this.visible.length > 30 ? this.visible.filter((i) => i === this.over) : this.visible;
    for (const index of dots) {
      const y = this.y(this.#heightOf(index));
      if (Number.isFinite(y)) {
        context.fillStyle = colour(index, isDark());
        context.beginPath();
        context.arc(x, y, index === this.over ? 4.5 : 3, 0, 2 * Math.PI);
        context.fill();
      }
    }
  }

  /** The value at which a row is drawn under the pointer. */
  #heightOf(index) {
    if (this.areas) {
      return this.areas[this.visible.indexOf(index)].high[this.at];
    }
    return this.data.rows[index].values[this.at];
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
    if (this.data === null || !this.visible) {
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
      this.#drawMarks();
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
    graphs.forEach((graph) => graph.#mark(null, -1));
  }

  #key(event) {
    const { count } = this.data ?? { count: 0 };
    const jump = event.shiftKey ? 10 : 1;
    const move = { ArrowLeft: -jump, ArrowRight: jump, Home: -count, End: count }[event.key];
    if (move && this.visible?.length > 0) {
      const from = this.at ?? (move < 0 ? count : -1);
      const index = Math.max(0, Math.min(count - 1, from + move));
      const row = this.over >= 0 ? this.over : this.visible[0];
      this.#point(this.x(index), this.y(this.data.rows[row].values[index]));
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

  /** Shows what lies under a place, here with values, in other graphs the time alone. */
  #point(x, y) {
    const { startMs, stepMs, count } = this.data;
    const ms = this.msAt(Math.max(this.left, Math.min(this.right, x)));
    this.#mark(
      Math.max(0, Math.min(count - 1, Math.round((ms - startMs) / stepMs))),
      this.#nearest(ms, y),
    );
    this.#showTip(x, y);
    for (const graph of graphs) {
      if (graph !== this && graph.data !== null && graph.visible) {
        const index = Math.round((ms - graph.data.startMs) / graph.data.stepMs);
        graph.#mark(index >= 0 && index < graph.data.count ? index : null, -1);
      }
    }
  }

  #mark(at, over) {
    const hasChanged = this.at !== at || this.over !== over || this.drag;
    Object.assign(this, { at, over });
    this.tip.hidden = true;
    if (hasChanged) {
      this.#drawMarks();
    }
  }

  #nearest(ms, y) {
    const { rows, startMs, stepMs, count } = this.data;
    const at = Math.max(0, Math.min(count - 1, Math.round((ms - startMs) / stepMs)));
    let [best, distance] = [-1, Infinity];
    this.visible.forEach((index, position) => {
      const area = this.areas?.[position];
      const value = area ? (area.low[at] + area.high[at]) / 2 : rows[index].values[at];
      const away = Math.abs(this.y(value) - y);
      if (away < distance) {
        [best, distance] = [index, away];
      }
    });
    return best;
  }

  #showTip(x, y) {
    const { rows, startMs, stepMs } = this.data;
    const listed = this.visible
      .filter((index) => !Number.isNaN(rows[index].values[this.at]))
      .sort((a, b) => rows[b].values[this.at] - rows[a].values[this.at]);
    const place = Math.max(0, listed.indexOf(this.over));
    const first = Math.max(0, Math.min(place - TIP_ROWS_MAX / 2, listed.length - TIP_ROWS_MAX));
    const shown = listed.slice(first, first + TIP_ROWS_MAX);
    const more = listed.length - shown.length;
    this.tip.replaceChildren(
      el("div", { class: "when" }, formatTime(startMs + this.at * stepMs, settings.isUtc)),
      ...shown.map((index) => this.#tipRow(index)),
      more > 0 ? el("div", { class: "more" }, `and ${more} more`) : "",
    );
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    const isLeft = x + 20 + offsetWidth > this.width;
    this.tip.style.left = `${Math.max(0, isLeft ? x - 16 - offsetWidth : x + 16)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y - 20, this.height - offsetHeight))}px`;
  }

  #tipRow(index) {
    const { labels, short, values } = this.data.rows[index];
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = colour(index, isDark());
    const name = short ?? formatLabels(labels);
    return el(
      "div",
      { class: index === this.over ? "row over" : "row" },
      swatch,
      el("span", { class: "name" }, name),
      el("span", { class: "value" }, formatNumber(values[this.at])),
    );
  }

  #inWords() {
    const { startMs, endMs } = this.data;
    const from = formatTime(Math.round(startMs / 1000) * 1000, settings.isUtc);
    const to = formatTime(Math.round(endMs / 1000) * 1000, settings.isUtc);
    const count = this.visible.length;
    const series = count === 1 ? "1 series" : `${count} series`;
    const bounds = `between ${formatNumber(this.low)} and ${formatNumber(this.high)}`;
    return `Graph of ${series} from ${from} to ${to}, ${bounds}. Arrow keys read values.`;
  }
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

function extremes(rows) {
  let [min, max] = [Infinity, -Infinity];
  for (const values of rows) {
    for (const value of values) {
      if (value < min && value !== -Infinity) {
        min = value;
      }
      if (value > max && value !== Infinity) {
        max = value;
      }
    }
  }
  return [min, max];
}

/** Where values follow one another without a gap, as [start, end) pairs. */
function runs(values) {
  const found = [];
  let start = -1;
  for (let index = 0; index <= values.length; index++) {
    const isThere = index < values.length && Number.isFinite(values[index]);
    if (isThere && start < 0) {
      start = index;
    } else if (!isThere && start >= 0) {
      found.push([start, index]);
      start = -1;
    }
  }
  return found;
}

/** Fills what lies between two rows from one index up to another, and lines it above. */
function drawArea(context, [start, end], stride, x, low, high) {
  context.beginPath();
  for (let index = start; index < end; index += stride) {
    context.lineTo(x(index), high(index));
  }
  context.globalAlpha = 1;
  context.stroke();
  const last = start + Math.floor((end - 1 - start) / stride) * stride;
  for (let index = last; index >= start; index -= stride) {
    context.lineTo(x(index), low(index));
  }
  context.globalAlpha = 0.55;
  context.fill();
  context.globalAlpha = 1;
}
