// The editor of a query: colours, suggestions, and the position of an error.
//
// A transparent text area lies above a coloured copy of its text.
//
// Enter runs the query, whether or not suggestions are listed yet. It takes a suggestion only if the
// arrow keys have chosen one.

import { deleted, typed } from "./brackets.js";
import { candidates, contextAt, taken } from "./complete.js";
import { debounced, el, newId } from "./dom.js";
import { classify } from "./lexer.js";
import { recentQueries } from "./settings.js";

const COLOURED_MAX = 20_000;

/** The box: { element, value, isOpen, focus(), mark(message), showRecent() }. */
export class Editor {
  /**
   * `known` answers the completion; `onRun`, `onEdit` and `onClose` are called after Enter, after
   * edits and after the suggestions disappear.
   */
  constructor(value, { known, name = "Query", onRun, onEdit, onClose }) {
    Object.assign(this, {
      known,
      name,
      onRun,
      onEdit,
      onClose,
      items: [],
      chosen: -1,
      marked: null,
      asked: 0,
    });
    this.list = el("ul", { role: "listbox", id: newId("choices"), "aria-label": "Suggestions" });
    const keys = el("p", { class: "hint" }, "↑ ↓ choose · Tab takes · Enter runs · Esc closes");
    const properties = { class: "choices", tabindex: "0", hidden: true };
    this.choices = el("div", properties, this.list, keys);
    this.choices.addEventListener("pointerdown", (event) => this.#pointed(event));
    this.copy = el("pre", { class: "copy", "aria-hidden": "true" });
    this.area = this.#textArea(value);
    this.element = el("div", { class: "editor" }, this.copy, this.area, this.choices);
    this.suggest = debounced(60, () => this.#suggest(false));
    this.#colour();
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    this.area.value = text;
    this.mark(null);
    this.close();
  }

  /** Returns whether suggestions are listed. */
  get isOpen() {
    return !this.choices.hidden;
  }

  focus() {
    this.area.focus({ preventScroll: true });
  }

  /** Underlines the position that an error message names; nothing for null. */
  mark(message) {
    this.marked = message === null ? null : placeOf(message, this.value);
    this.area.setAttribute("aria-invalid", message === null ? "false" : "true");
    this.#colour();
  }

  /** Lists earlier queries. */
  showRecent() {
    const items = recentQueries().map((text) => ({ text, kind: "query" }));
    this.context = { kind: "recent", from: 0, to: this.value.length, prefix: "" };
    this.focus();
    this.#show(items);
  }

  close() {
    // A list that is being made is not shown any more.
    this.suggest.cancel();
    this.asked += 1;
    this.#show([]);
  }

  #textArea(value) {
    const area = el("textarea", {
      "aria-label": this.name,
      "aria-autocomplete": "list",
      "aria-haspopup": "listbox",
      "aria-controls": this.list.id,
      rows: "1",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      placeholder: "Write a query, or press ↓ for suggestions",
      onkeydown: (event) => this.#key(event),
      onblur: () => this.close(),
      onclick: () => this.close(),
      onbeforeinput: (event) => this.#pair(event),
      oninput: () => {
        this.mark(null);
        this.onEdit?.();
        this.suggest();
      },
    });
    area.value = value;
    return area;
  }

  /** Closes brackets and quotes as they are opened. */
  #pair(event) {
    const { selectionStart: start, selectionEnd: end } = this.area;
    let edit = null;
    if (this.isReplacing) {
      return;
    }
    if (event.inputType === "insertText" && event.data?.length === 1 && !event.isComposing) {
      edit = typed(this.value, start, end, event.data);
    } else if (event.inputType === "deleteContentBackward") {
      edit = deleted(this.value, start, end);
    }
    if (edit !== null) {
      event.preventDefault();
      this.#replace(edit);
    }
  }

  /** Replaces a part of the text such that the browser can undo it. */
  #replace({ from, to, insert, start, end }) {
    if (from === to && insert === "") {
      this.close();
    } else {
      this.area.setSelectionRange(from, to);
      this.isReplacing = true;
      const isDone = document.execCommand(insert === "" ? "delete" : "insertText", false, insert);
      this.isReplacing = false;
      if (!isDone) {
        this.area.setRangeText(insert, from, to, "end");
        this.area.dispatchEvent(new InputEvent("input"));
      }
    }
    this.area.setSelectionRange(start, end);
  }

  #colour() {
    const text = this.value;
    const tokens =
      text.length > COLOURED_MAX
        ? [{ kind: "plain", start: 0, end: text.length, text }]
        : classify(text);
    const place = this.marked;
    this.copy.replaceChildren(
      ...tokens.flatMap((token) => pieces(token, place)),
      // A last empty line has no height without something in it.
      place && place.start >= text.length ? el("span", { class: "wrong" }, " ") : "",
      "\u200b",
    );
  }

  async #suggest(isAsked) {
    this.asked += 1;
    const { asked } = this;
    const cursor = this.area.selectionStart;
    if (this.area.selectionEnd !== cursor || document.activeElement !== this.area) {
      return this.#show([]);
    }
    const context = contextAt(this.value, cursor);
    const isQuiet =
      !isAsked && context.prefix === "" && !["label", "value", "grouping"].includes(context.kind);
    const found = isQuiet ? [] : await candidates(context, this.known);
    if (asked !== this.asked) {
      return undefined;
    }
    if (isAsked && this.value === "") {
      const recent = recentQueries().slice(0, 5);
      found.unshift(...recent.map((text) => ({ text, kind: "query" })));
    }
    this.context = context;
    const isDone = found.length === 1 && found[0].text === context.prefix;
    return this.#show(isDone && !isAsked ? [] : found);
  }

  #show(items) {
    this.items = items;
    const wasOpen = this.isOpen;
    this.choices.hidden = items.length === 0;
    if (wasOpen && !this.isOpen) {
      this.onClose();
    }
    this.list.replaceChildren(...items.map((item, index) => this.#row(item, index)));
    this.#choose(-1);
  }

  #row(item, index) {
    const about = typeof item.about === "function" ? item.about() : (item.about ?? "");
    const properties = { role: "option", id: `${this.list.id}-${index}`, dataset: { index } };
    return el(
      "li",
      properties,
      el("span", { class: `kind ${item.kind}` }, item.kind),
      el("span", { class: "word" }, item.text),
      el("span", { class: "about" }, about),
    );
  }

  #choose(index) {
    this.list.children[this.chosen]?.removeAttribute("aria-selected");
    this.chosen = index;
    const row = this.list.children[index];
    row?.setAttribute("aria-selected", "true");
    row?.scrollIntoView({ block: "nearest" });
    if (row) {
      this.area.setAttribute("aria-activedescendant", row.id);
    } else {
      this.area.removeAttribute("aria-activedescendant");
    }
  }

  #pointed(event) {
    // The text area keeps the focus.
    event.preventDefault();
    const row = event.target.closest("li");
    if (row) {
      this.#take(this.items[Number(row.dataset.index)]);
    }
  }

  #take(item) {
    const isRecent = this.context.kind === "recent";
    // The text may have changed since the list was made.
    const context = isRecent ? this.context : contextAt(this.value, this.area.selectionStart);
    if (context.kind !== this.context.kind) {
      return this.close();
    }
    const { text, cursor } = taken(this.value, context, item);
    this.#replace({ from: 0, to: this.value.length, insert: text, start: cursor, end: cursor });
    const goesOn = ["function", "aggregation", "label", "operator"].includes(item.kind);
    return goesOn ? this.#suggest(false) : this.close();
  }

  #key(event) {
    if (event.isComposing) {
      return;
    }
    const isOpen = this.items.length > 0;
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (isOpen && move) {
      const count = this.items.length;
      this.#choose(
        Math.abs(move) === 1
          ? (Math.max(this.chosen, move > 0 ? -1 : 0) + move + count) % count
          : clamp(this.chosen + move, count),
      );
    } else if (event.key === "ArrowDown" && this.#isOnLastLine()) {
      this.#suggest(true);
    } else if (event.key === " " && event.ctrlKey) {
      this.#suggest(true);
    } else if (event.key === "Escape" && isOpen) {
      this.close();
    } else if (event.key === "Tab" && isOpen && !event.shiftKey) {
      this.#complete();
    } else if (event.key === "Enter" && !event.shiftKey) {
      this.#enter(event);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Takes the chosen suggestion, or the first one for the present text. */
  async #complete() {
    const { kind, prefix } = this.context;
    const isOutdated = () => contextAt(this.value, this.area.selectionStart).prefix !== prefix;
    if (this.chosen < 0 && kind !== "recent" && isOutdated()) {
      this.suggest.cancel();
      await this.#suggest(false);
    }
    if (this.isOpen) {
      this.#take(this.items[Math.max(0, this.chosen)]);
    }
  }

  #isOnLastLine() {
    return !this.value.slice(this.area.selectionEnd).includes("\n");
  }

  /** Takes the chosen suggestion; without one, runs the query. */
  #enter(event) {
    const item = this.items[this.chosen];
    if (item && !event.ctrlKey && !event.metaKey) {
      this.#take(item);
      return;
    }
    this.close();
    this.onRun?.();
  }
}

function clamp(index, count) {
  return Math.max(0, Math.min(count - 1, index));
}

/** A token as coloured spans, cut where the underlined part begins and ends. */
function pieces(token, place) {
  const cuts = [token.start, token.end];
  if (place) {
    cuts.push(...[place.start, place.end].filter((at) => at > token.start && at < token.end));
  }
  cuts.sort((a, b) => a - b);
  return cuts.slice(1).map((end, index) => {
    const start = cuts[index];
    const isWrong = place && start >= place.start && end <= place.end;
    const text = token.text.slice(start - token.start, end - token.start);
    const kind = token.kind === "space" && !isWrong ? null : token.kind + (isWrong ? " wrong" : "");
    return kind === null ? text : el("span", { class: kind }, text);
  });
}

/**
 * The position of the server's error in a query: { start, end }, or null if the error names none.
 * "1:5: parse error: …" names line and column, the latter in bytes.
 */
export function placeOf(message, text) {
  const found = /(?:^|[\s(])(\d+):(\d+)(?:: parse error|\))/.exec(message);
  if (!found) {
    return null;
  }
  const lines = text.split("\n");
  const [line, column] = [Number(found[1]) - 1, Number(found[2]) - 1];
  if (line >= lines.length) {
    return { start: text.length, end: text.length };
  }
  const before = lines.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
  const start = before + indexOfByte(lines[line], column);
  const token = classify(text).find((one) => one.end > start);
  return { start, end: token ? token.end : text.length };
}

function indexOfByte(text, wanted) {
  let bytes = 0;
  for (let index = 0; index < text.length;) {
    if (bytes >= wanted) {
      return index;
    }
    const code = text.codePointAt(index);
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    index += code < 0x10000 ? 1 : 2;
  }
  return text.length;
}
