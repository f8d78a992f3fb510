// Histograms over time: a column of buckets for each step, coloured by count, and quantiles as lines.

import { bucketScale, rangeText } from "./buckets.js";
import { Chart, tipRow } from "./chart.js";
import { linePoints } from "./decimate.js";
import { formatCount, formatNumber } from "./numbers.js";
import { heatColour, quantileColour } from "./palette.js";
import { isDark } from "./settings.js";

/** A heatmap: { element, show(data), setExponential(is), remove() }. */
export class Heatmap extends Chart {
  constructor(options) {
    super(options);
    this.isExponential = true;
  }

  /**
   * Shows `data`: { startMs, endMs, stepMs, count, columns, quantiles }. A column is a list of buckets
   * or null; `quantiles` are [{ name, values }].
   */
  show(data) {
    Object.assign(this, { data, over: -1, at: null });
    this.most = 0;
    const distinct = new Map();
    for (const bucket of data.columns.flatMap((column) => column ?? [])) {
      distinct.set(`${bucket.lower} ${bucket.upper}`, bucket);
      this.most = Math.max(this.most, Number.isFinite(bucket.count) ? bucket.count : 0);
    }
    this.buckets = [...distinct.values()];
    this.draw();
  }

  setExponential(isExponential) {
    this.isExponential = isExponential;
    this.draw();
  }

  /** Some counts with their colours: [{ name, colour }]. */
  colours() {
    return [0.25, 0.5, 0.75, 1].map((share) => ({
      name: `${formatNumber(share * this.most)} in a bucket`,
      colour: heatColour(share, isDark()),
    }));
  }

  measure(height) {
    const scale = bucketScale(this.buckets, this.isExponential);
    this.heightOf = scale.at;
    this.ticks = scale.ticks(Math.max(2, Math.floor(height / 45)));
  }

  paint(context) {
    const { columns, quantiles } = this.data;
    const [dark, half] = [isDark(), (this.x(1) - this.x(0)) / 2];
    columns.forEach((column, index) => {
      if (column === null) {
        return;
      }
      // Whole pixels, so that no seams show between columns.
      const [from, to] = [Math.round(this.x(index) - half), Math.round(this.x(index) + half)];
      for (const bucket of column) {
        if (bucket.count > 0) {
          const [low, high] = this.#edgesOf(bucket);
          context.fillStyle = heatColour(bucket.count / this.most, dark);
          context.fillRect(from, high, Math.max(1, to - from), Math.max(1, low - high));
        }
      }
    });
    quantiles.forEach(({ values }, index) => this.#drawQuantile(context, values, index));
  }

  #edgesOf({ lower, upper }) {
    return [Math.round(this.y(this.heightOf(lower))), Math.round(this.y(this.heightOf(upper)))];
  }

  #drawQuantile(context, values, index) {
    const points = linePoints(values, this.x, (value) => this.y(this.heightOf(value)));
    context.beginPath();
    let isOpen = false;
    for (let at = 0; at < points.length; at += 2) {
      const [x, y] = [points[at], points[at + 1]];
      if (isOpen) {
        context.lineTo(x, y);
      } else {
        context.moveTo(x, y);
      }
      isOpen = x === x;
    }
    context.lineJoin = "round";
    const paper = getComputedStyle(this.element).backgroundColor;
    for (const [style, width] of [
      [paper, 4],
      [quantileColour(index, isDark()), 2],
    ]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.stroke();
    }
  }

  /** Outlines the bucket under the pointer. */
  paintMarks(context) {
    const bucket = this.data.columns[this.at]?.[this.over];
    if (!bucket) {
      return;
    }
    const half = (this.x(1) - this.x(0)) / 2;
    const [low, high] = this.#edgesOf(bucket);
    context.strokeStyle = getComputedStyle(this.element).color;
    context.lineWidth = 1.5;
    const width = Math.max(3, 2 * half);
    context.strokeRect(this.x(this.at) - width / 2, high, width, Math.max(2, low - high));
  }

  /** The bucket of a step at a height in pixels; -1 for none. */
  nearest(at, y) {
    const column = this.data.columns[at] ?? [];
    return column.findIndex((bucket) => {
      const [low, high] = this.#edgesOf(bucket);
      return y <= low && y >= high;
    });
  }

  stepHeight(at, climb) {
    const column = this.data.columns[at];
    if (!column) {
      return 0.5;
    }
    const last = this.over >= 0 && this.over < column.length ? this.over : 0;
    const { lower, upper } = column[Math.max(0, Math.min(column.length - 1, last + climb))];
    return (this.heightOf(lower) + this.heightOf(upper)) / 2;
  }

  tipRows() {
    const { columns, quantiles } = this.data;
    const [dark, column] = [isDark(), columns[this.at]];
    const bucket = column?.[this.over];
    const rows = [];
    if (bucket) {
      const total = column.reduce((sum, { count }) => sum + count, 0);
      const share = total > 0 ? ` (${((bucket.count / total) * 100).toFixed(1)} %)` : "";
      const value = formatNumber(bucket.count) + share;
      rows.push(
        tipRow(heatColour(bucket.count / this.most, dark), rangeText(bucket), value, {
          isOver: true,
        }),
      );
    }
    quantiles.forEach(({ name, values }, index) => {
      const value = formatNumber(values[this.at]);
      rows.unshift(tipRow(quantileColour(index, dark), name, value));
    });
    return rows;
  }

  inWords(from, to) {
    const most = formatCount(this.most);
    return `Heatmap of histograms from ${from} to ${to}, at most ${most} in a bucket. Arrow keys read buckets.`;
  }
}
