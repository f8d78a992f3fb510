// Series over time as lines, or as areas on top of each other.

import { Chart, tipRow } from "./chart.js";
import { linePoints, stacked } from "./decimate.js";
import { el } from "./dom.js";
import { formatLabels, formatNumber, formatTick } from "./numbers.js";
import { colour } from "./palette.js";
import { axisBounds, valueTicks } from "./scales.js";
import { isDark } from "./settings.js";

const TIP_ROWS_MAX = 10;
/** Number of lines from which they are thin, and dots follow the pointer on one of them only. */
const MANY = 30;
const DASHES = [6, 4];

/** A graph: { element, show(data, isStacked), hide(indices), highlight(index), remove() }. */
export class Graph extends Chart {
  constructor(options) {
    super(options);
    Object.assign(this, { isStacked: false, hidden: new Set() });
  }

  /**
   * Shows `data`: { startMs, endMs, stepMs, count, rows }. A row is { labels, short, values } and,
   * for a row that is compared with another, `isDashed` and `colourOf`, the index of the other.
   */
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
    this.drawMarks();
  }

  measure(height) {
    const { rows, count } = this.data;
    this.visible = rows.map((_, index) => index).filter((index) => !this.hidden.has(index));
    const values = this.visible.map((index) => rows[index].values);
    this.areas = this.isStacked ? stacked(values, count) : null;
    const shown = this.areas ? this.areas.flatMap(({ low, high }) => [low, high]) : values;
    const [min, max] = extremes(shown);
    const [low, high] = axisBounds(min, max, this.isStacked);
    const axis = valueTicks(low, high, Math.max(2, Math.floor(height / 45)));
    Object.assign(this, { low, high });
    this.heightOf = (value) => (value - low) / (high - low);
    this.ticks = axis.ticks.map((tick) => ({
      at: this.heightOf(tick),
      label: formatTick(tick, axis.step),
    }));
  }

  paint(context) {
    if (this.isStacked) {
      this.#drawAreas(context);
      return;
    }
    // Thin lines are drawn several times as fast, and many of them are easier to tell apart.
    const width = this.visible.length > MANY ? 1 : 1.5;
    this.visible.forEach((index) => this.#drawLine(context, index, width));
  }

  paintMarks(context) {
    if (this.over >= 0 && !this.isStacked && !this.hidden.has(this.over)) {
      this.#drawLine(context, this.over, 3.5);
    }
    if (this.at !== null) {
      this.#drawDots(context, Math.round(this.x(this.at)) + 0.5);
    }
  }

  #colour(index) {
    return colour(this.data.rows[index].colourOf ?? index, isDark());
  }

  #yOf(value) {
    return this.y(this.heightOf(value));
  }

  #drawLine(context, index, width) {
    const row = this.data.rows[index];
    const [scale, zero] = [this.#yOf(1) - this.#yOf(0), this.#yOf(0)];
    const points = linePoints(row.values, this.x, (value) => zero + value * scale);
    context.strokeStyle = context.fillStyle = this.#colour(index);
    context.lineWidth = width;
    context.setLineDash(row.isDashed ? DASHES : []);
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
    context.setLineDash([]);
  }

  #drawAreas(context) {
    const stride = Math.max(1, Math.floor(this.data.count / Math.max(1, this.right - this.left)));
    this.visible.forEach((index, position) => {
      const { low, high } = this.areas[position];
      context.fillStyle = context.strokeStyle = this.#colour(index);
      context.lineWidth = 1;
      const [lowAt, highAt] = [(at) => this.#yOf(low[at]), (at) => this.#yOf(high[at])];
      for (const run of runs(high)) {
        drawArea(context, run, stride, this.x, lowAt, highAt);
      }
    });
  }

  #drawDots(context, x) {
    const isOver = (index) => index === this.over;
    const dots = this.visible.length > MANY ? this.visible.filter(isOver) : this.visible;
    for (const index of dots) {
      const y = this.#yOf(this.#topOf(index));
      if (Number.isFinite(y)) {
        context.fillStyle = this.#colour(index);
        context.beginPath();
        context.arc(x, y, isOver(index) ? 4.5 : 3, 0, 2 * Math.PI);
        context.fill();
      }
    }
  }

  /** The value at which a row is drawn under the pointer. */
  #topOf(index) {
    if (this.areas) {
      return this.areas[this.visible.indexOf(index)].high[this.at];
    }
    return this.data.rows[index].values[this.at];
  }

  /** The row that is drawn closest to a position. */
  nearest(at, y) {
    let [best, distance] = [-1, Infinity];
    this.visible.forEach((index, position) => {
      const area = this.areas?.[position];
      const value = area ? (area.low[at] + area.high[at]) / 2 : this.data.rows[index].values[at];
      const away = Math.abs(this.#yOf(value) - y);
      if (away < distance) {
        [best, distance] = [index, away];
      }
    });
    return best;
  }

  /** The height of the last row at a step; with `climb`, of the next row above or below it. */
  stepHeight(at, climb) {
    if (this.visible.length === 0) {
      return null;
    }
    const { rows } = this.data;
    const heights = this.#listed(at);
    const place = heights.indexOf(this.over);
    const next = climb === 0 ? this.over : (heights[place - climb] ?? this.over);
    const row = next >= 0 && !this.hidden.has(next) ? next : this.visible[0];
    return this.heightOf(rows[row].values[at]);
  }

  /** The visible rows with a value at a step, largest first. */
  #listed(at) {
    const { rows } = this.data;
    return this.visible
      .filter((index) => !Number.isNaN(rows[index].values[at]))
      .sort((a, b) => rows[b].values[at] - rows[a].values[at]);
  }

  tipRows() {
    const listed = this.#listed(this.at);
    const place = Math.max(0, listed.indexOf(this.over));
    const first = Math.max(0, Math.min(place - TIP_ROWS_MAX / 2, listed.length - TIP_ROWS_MAX));
    const shown = listed.slice(first, first + TIP_ROWS_MAX);
    const more = listed.length - shown.length;
    const rows = shown.map((index) => {
      const { labels, short, values, isDashed } = this.data.rows[index];
      const [name, value] = [short ?? formatLabels(labels), formatNumber(values[this.at])];
      return tipRow(this.#colour(index), name, value, { isOver: index === this.over, isDashed });
    });
    return more > 0 ? [...rows, el("div", { class: "more" }, `and ${more} more`)] : rows;
  }

  inWords(from, to) {
    const count = this.visible.length;
    const series = count === 1 ? "1 series" : `${count} series`;
    const bounds = `between ${formatNumber(this.low)} and ${formatNumber(this.high)}`;
    return `Graph of ${series} from ${from} to ${to}, ${bounds}. Arrow keys read values.`;
  }
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

/** Runs of values without a gap, as [start, end) pairs. */
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

/** Fills the area between two rows from one index to another, and draws its upper line. */
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
