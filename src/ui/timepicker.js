// The choice of a range of time: presets, and an absolute start and end.

import { button, el, newId } from "./dom.js";
import { parseTime } from "./numbers.js";
import { settings } from "./settings.js";
import { inputTime, presets } from "./times.js";

/** The picker: { element, close() }. */
export class TimePicker {
  /** `time()` gives { startMs, endMs }; `onPick(startMs, endMs)` is called, `endMs` null for now. */
  constructor({ time, onPick }) {
    Object.assign(this, { time, onPick });
    this.dialog = el("div", {
      ...{ class: "picker", role: "dialog", "aria-label": "Range of time", id: newId("picker") },
      hidden: true,
      onkeydown: (event) => this.#key(event),
    });
    this.opener = button("Pick a range", () => this.#toggle(), {
      "aria-expanded": "false",
      "aria-controls": this.dialog.id,
      "aria-haspopup": "dialog",
    });
    this.element = el("div", { class: "picker-holder" }, this.opener, this.dialog);
    this.element.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget !== null && !this.element.contains(relatedTarget)) {
        this.close();
      }
    });
    document.addEventListener("pointerdown", ({ target }) => {
      if (!this.element.contains(target)) {
        this.close();
      }
    });
  }

  close() {
    this.dialog.hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
  }

  #toggle() {
    if (!this.dialog.hidden) {
      this.close();
      return;
    }
    this.dialog.replaceChildren(this.#list(), this.#form());
    this.dialog.hidden = false;
    this.opener.setAttribute("aria-expanded", "true");
    this.dialog.querySelector("button").focus();
  }

  #list() {
    const named = presets(Date.now(), settings.isUtc);
    this.buttons = named.map(({ name, startMs, endMs }) =>
      button(name, () => this.#pick(startMs, endMs)),
    );
    return el("div", { class: "presets", role: "group", "aria-label": "Presets" }, this.buttons);
  }

  #form() {
    const { startMs, endMs } = this.time();
    const input = (name, ms) =>
      el("input", {
        ...{ type: "datetime-local", step: "1", "aria-label": name },
        value: inputTime(ms, settings.isUtc),
      });
    const [from, to] = [input("From", startMs), input("To", endMs)];
    const wrong = el("p", { class: "time-error", role: "alert", hidden: true });
    const apply = (event) => {
      event.preventDefault();
      const times = [from, to].map(({ value }) => parseTime(value, settings.isUtc));
      const problem = problemOf(times);
      wrong.hidden = problem === null;
      wrong.textContent = problem ?? "";
      if (problem === null) {
        this.#pick(...times);
      }
    };
    const zone = settings.isUtc ? "UTC" : "local time";
    return el(
      "form",
      { class: "absolute", onsubmit: apply, novalidate: true },
      el("label", {}, "From", from),
      el("label", {}, "To", to),
      wrong,
      el("button", { class: "run" }, "Apply"),
      el("p", { class: "hint" }, `Times are ${zone}.`),
    );
  }

  #pick(startMs, endMs) {
    this.close();
    this.opener.focus();
    this.onPick(startMs, endMs);
  }

  /** Arrow keys walk through the presets, Escape closes. */
  #key(event) {
    const index = this.buttons.indexOf(document.activeElement);
    const move = { ArrowDown: 1, ArrowUp: -1, Home: -index, End: -1 - index }[event.key];
    if (event.key === "Escape") {
      this.close();
      this.opener.focus();
    } else if (move !== undefined && index >= 0) {
      const count = this.buttons.length;
      this.buttons[(index + move + count) % count].focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}

function problemOf([startMs, endMs]) {
  if (Number.isNaN(startMs) || Number.isNaN(endMs)) {
    return "Expected a date and a time in both fields.";
  }
  return startMs < endMs ? null : "From must be before To.";
}
