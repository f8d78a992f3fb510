// Results as CSV and JSON files, graphs as images, and texts for the clipboard.

import { formatLabels } from "./numbers.js";

const PADDING = 16;
const LINE = 20;
const NAMES_MAX = 20;

/** Beginning of a text that a spreadsheet reads as a formula. */
const FORMULA = /^[=+\-@\t\r]/;
/** Numbers as PromQL writes them. */
const NUMBER = /^[+-]?(?:Inf(?:inity)?|(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)$/i;

/**
 * The rows of a table as CSV (RFC 4180). A text that a spreadsheet would evaluate as a formula
 * begins with a single quote.
 */
export function csv(rows) {
  return rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");
}

function field(value) {
  const plain = String(value);
  const text = FORMULA.test(plain) && !NUMBER.test(plain) ? `'${plain}` : plain;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The rows of a graph as CSV: a column of times, and one for each series. */
export function gridCsv({ startMs, stepMs, count, rows }) {
  const lines = [["time", ...rows.map((row) => row.short ?? formatLabels(row.labels))]];
  for (let index = 0; index < count; index++) {
    const values = rows.map(({ values }) => (Number.isNaN(values[index]) ? "" : values[index]));
    lines.push([new Date(startMs + index * stepMs).toISOString(), ...values]);
  }
  return csv(lines);
}

/** The name of a file for a query, such as sum_rate_requests_total.csv. */
export function fileName(expr, extension) {
  const words = expr.match(/[a-zA-Z_]\w*/g) ?? ["query"];
  return `${words.join("_").slice(0, 60)}.${extension}`;
}

/** Saves a text or a blob as a file. */
export function save(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  // The browser reads the address after the click.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Puts a text on the clipboard, also where pages without TLS have no clipboard of their own. */
export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) {
    throw new Error("The browser refuses to copy.");
  }
}

/**
 * A chart as a PNG image with its query and the names of its series: [{ colour, name }].
 */
export function chartImage(chart, title, names) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height, lines, element } = chart;
  const style = getComputedStyle(element);
  const shown = names.slice(0, NAMES_MAX);
  const titles = title.split("\n").slice(0, 5);
  const top = PADDING + titles.length * LINE;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round((width + 2 * PADDING) * ratio);
  canvas.height = Math.round((top + height + shown.length * LINE + PADDING) * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.font = `13px ${style.fontFamily}`;
  context.textBaseline = "middle";
  context.fillStyle = style.color;
  titles.forEach((text, index) => context.fillText(text, PADDING, PADDING + index * LINE, width));
  context.drawImage(lines, PADDING, top, width, height);
  shown.forEach(({ colour, name }, index) => {
    const y = top + height + (index + 0.5) * LINE;
    context.fillStyle = colour;
    context.fillRect(PADDING, y - 5, 10, 10);
    context.fillStyle = style.color;
    context.fillText(name, PADDING + 18, y, width - 18);
  });
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}
