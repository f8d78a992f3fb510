// Figures, tables and notes of the status pages.

import { el } from "./dom.js";

/** Pairs of a name and a value, side by side. */
export function figures(facts) {
  const shown = facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value)),
  );
  return el("dl", { class: "figures" }, shown);
}

/** A table; all columns but the first are numbers, unless `isNumeric` is false. */
export function table(names, rows, isNumeric = true) {
  const kind = (index) => ({ class: isNumeric && index > 0 ? "number" : null });
  const heads = names.map((name, index) => el("th", { scope: "col", ...kind(index) }, name));
  const body = rows.map((cells) =>
    el(
      "tr",
      {},
      cells.map((cell, index) => el("td", kind(index), cell)),
    ),
  );
  const whole = el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  return el("div", { class: "scrolled", tabindex: "0" }, whole);
}

/** The text of a list without entries. */
export function nothing(text) {
  return el("p", { class: "empty" }, text);
}
