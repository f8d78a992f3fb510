// Completion: the context of the cursor, and suggestions that fit it.

import { classify, cut } from "./lexer.js";
import { AGGREGATIONS, FUNCTIONS, KEYWORDS } from "./words.js";

const LISTS = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);
const MATCHES = new Set(["=", "!=", "=~", "!~"]);
const DURATIONS = ["30s", "1m", "5m", "15m", "30m", "1h", "6h", "1d", "1w"];

/**
 * The context of the cursor: { kind, from, to, prefix } and, by kind,
 * - "expression": a metric, function or aggregation
 * - "operator": the word after an operand
 * - "label": a name in braces, with `selector`
 * - "match": one of = != =~ !~
 * - "value": the value of a label, with `label` and `selector`
 * - "grouping": a name in by (…) and its like, with `metrics` named in the query
 * - "duration": in brackets or after offset
 * - "none": nothing, as in comments
 */
export function contextAt(text, cursor) {
  const tokens = cut(text).filter((token) => token.kind !== "space");
  const before = tokens.filter((token) => token.start < cursor);
  let current = before.at(-1);
  const isTouched = current !== undefined && current.end >= cursor;
  const isWord = ["identifier", "string", "comment", "duration", "number"].includes(current?.kind);
  const isInside = isTouched && isWord && !endsBefore(current, cursor);
  if (!isInside) {
    current = undefined;
  }
  const scan = scanned(current ? before.slice(0, -1) : before);
  const span = current
    ? { from: current.start, to: current.end, prefix: text.slice(current.start, cursor) }
    : { from: cursor, to: cursor, prefix: "" };
  return { ...wanted(scan, current, text), ...span };
}

/** Returns whether a string is complete and the cursor is after it. */
function endsBefore(token, cursor) {
  if (token.kind === "string") {
    return token.end === cursor && isClosed(token.text);
  }
  return false;
}

function isClosed(text) {
  return text.length > 1 && text.at(-1) === text[0];
}

/** The innermost open bracket after some tokens, and the last token. */
function scanned(tokens) {
  const open = [];
  let last;
  for (const token of tokens) {
    if (token.kind === "comment") {
      continue;
    }
    const top = open.at(-1);
    if (token.text === "{") {
      const metric = last?.kind === "identifier" ? last.text : "";
      open.push({ bracket: "{", metric, matchers: [], parts: [] });
    } else if (token.text === "(") {
      open.push({ bracket: "(", isList: LISTS.has(last?.text.toLowerCase()) });
    } else if (token.text === "[") {
      open.push({ bracket: "[" });
    } else if (")}]".includes(token.text)) {
      open.pop();
    } else if (top?.bracket === "{") {
      if (token.text === ",") {
        endMatcher(top);
      } else {
        top.parts.push(token);
      }
    }
    last = token;
  }
  return { top: open.at(-1), last };
}

function endMatcher(frame) {
  if (frame.parts.length === 3) {
    frame.matchers.push(frame.parts.map((part) => part.text).join(""));
  }
  frame.parts = [];
}

function wanted({ top, last }, current, text) {
  if (current?.kind === "comment") {
    return { kind: "none" };
  }
  if (top?.bracket === "{") {
    return inBraces(top, current);
  }
  if (current?.kind === "string") {
    return { kind: "none" };
  }
  if (top?.bracket === "[" || last?.text.toLowerCase() === "offset") {
    return { kind: "duration" };
  }
  if (current?.kind === "number" || current?.kind === "duration") {
    return { kind: "none" };
  }
  if (top?.isList) {
    return { kind: "grouping", metrics: metricsOf(text) };
  }
  return { kind: isOperand(last) ? "operator" : "expression" };
}

function inBraces(frame, current) {
  const [label, match] = frame.parts;
  const selector = `${frame.metric}{${frame.matchers.join(",")}}`;
  if (label === undefined) {
    const isName = current === undefined || current.kind === "identifier";
    return isName ? { kind: "label", selector } : { kind: "none" };
  }
  if (match === undefined) {
    return { kind: "match" };
  }
  const isValue = frame.parts.length === 2 && MATCHES.has(match.text);
  return isValue ? { kind: "value", label: label.text, selector } : { kind: "none" };
}

function isOperand(token) {
  if (token === undefined) {
    return false;
  }
  if (")}]".includes(token.text)) {
    return true;
  }
  const isWord = token.kind === "identifier" && !KEYWORDS[token.text.toLowerCase()];
  return isWord || ["number", "duration", "string"].includes(token.kind);
}

/** The metrics that a query names. */
function metricsOf(text) {
  const metrics = classify(text).filter((token) => token.kind === "metric");
  return [...new Set(metrics.map((token) => token.text))];
}

/**
 * The candidates of a context, best first. `known` gives what the server holds: `metrics()`,
 * `labels(selector)`, `values(label, selector)`, each a promise of texts, and `about(metric)`.
 */
export async function candidates(context, known, countMax = 50) {
  const all = await offered(context, known);
  const prefix = context.prefix.replace(/^["'`]/, "");
  return ranked(prefix, all, countMax);
}

async function offered(context, known) {
  const plain = (texts, kind) => texts.map((text) => ({ text, kind }));
  switch (context.kind) {
    case "expression":
      return [...metricItems(await known.metrics(), known), ...callItems()];
    case "operator":
      return Object.entries(KEYWORDS).map(([text, about]) => ({ text, kind: "keyword", about }));
    case "label":
      return plain(await known.labels(context.selector), "label");
    case "grouping": {
      const selector = context.metrics.length === 1 ? context.metrics[0] : "";
      return plain(await known.labels(selector), "label");
    }
    case "match":
      return plain([...MATCHES], "operator");
    case "value":
      return plain(await known.values(context.label, context.selector), "value");
    case "duration":
      return plain(DURATIONS, "duration");
    default:
      return [];
  }
}

function metricItems(metrics, known) {
  return metrics.map((text) => ({ text, kind: "metric", about: () => known.about(text) }));
}

function callItems() {
  const item = (kind) => (entry) => {
    const [text, [args, about]] = entry;
    return { text, kind, about: `(${args}) ${about}` };
  };
  return [
    ...Object.entries(AGGREGATIONS).map(item("aggregation")),
    ...Object.entries(FUNCTIONS).map(item("function")),
  ];
}

/** The items whose text fits, best first; in their order where they fit alike. */
export function ranked(prefix, items, countMax) {
  const wanted = prefix.toLowerCase();
  const fitting = [];
  items.forEach((item, index) => {
    const score = fit(wanted, item.text.toLowerCase());
    if (score > 0) {
      fitting.push({ item, score, index });
    }
  });
  fitting.sort((a, b) => b.score - a.score || a.index - b.index);
  return fitting.slice(0, countMax).map(({ item }) => item);
}

/** The rank of a text for a prefix, higher for a better fit; 0 if it does not fit. */
function fit(wanted, text) {
  if (text.startsWith(wanted)) {
    return text.length === wanted.length ? 5 : 4;
  }
  const at = text.indexOf(wanted);
  if (at > 0) {
    return /[_:./\-\s]/.test(text[at - 1]) ? 3 : 2;
  }
  let position = 0;
  for (const character of wanted) {
    position = text.indexOf(character, position) + 1;
    if (position === 0) {
      return 0;
    }
  }
  return wanted.length > 2 ? 1 : 0;
}

/**
 * The text after taking a candidate: { text, cursor }. Functions get parentheses, values their
 * quotes.
 */
export function taken(text, context, item) {
  const [before, after] = [text.slice(0, context.from), text.slice(context.to)];
  let [inserted, back] = [item.text, 0];
  if (item.kind === "query") {
    return { text: item.text, cursor: item.text.length };
  }
  if (item.kind === "value") {
    const quote = /^["'`]/.exec(context.prefix)?.[0] ?? '"';
    inserted = quote + escaped(item.text, quote) + quote;
  } else if (item.kind === "label" && context.kind === "label" && !/^\s*(=|!)/.test(after)) {
    inserted += "=";
  } else if ((item.kind === "function" || item.kind === "aggregation") && !/^\s*\(/.test(after)) {
    inserted += "()";
    back = FUNCTIONS[item.text]?.[0] === "" ? 0 : 1;
  }
  return { text: before + inserted + after, cursor: before.length + inserted.length - back };
}

function escaped(value, quote) {
  if (quote === "`") {
    return value;
  }
  const plain = value.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`);
  return plain.replaceAll("\n", "\\n");
}
