// Tokens of a query with their kinds, for colours and completion.
//
// The lexer never fails: text that is no PromQL is a token of kind "unknown". The server checks queries.

import { AGGREGATIONS, FUNCTIONS, KEYWORDS } from "./words.js";

const PATTERNS = [
  ["space", /\s+/y],
  ["comment", /#[^\n]*/y],
  ["string", /"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?|`[^`]*`?/y],
  ["duration", /(?:\d+(?:ms|[smhdwy]))+(?![\w.])/y],
  ["number", /0[xX][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?/y],
  ["identifier", /[a-zA-Z_:][\w:]*/y],
  ["operator", /=~|!~|==|!=|<=|>=|<\/|>\/|[-+*/%^=<>@]/y],
  ["punctuation", /[(){}[\],:]/y],
];

const OPENING = { ")": "(", "}": "{", "]": "[" };
const LISTS = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);

/** All tokens, spaces and comments included, as { kind, start, end, text }, without a gap. */
export function cut(text) {
  const tokens = [];
  for (let start = 0; start < text.length;) {
    const token = next(text, start);
    tokens.push(token);
    start = token.end;
  }
  return tokens;
}

function next(text, start) {
  for (const [kind, pattern] of PATTERNS) {
    pattern.lastIndex = start;
    const found = pattern.exec(text);
    if (found) {
      return { kind, start, end: start + found[0].length, text: found[0] };
    }
  }
  const character = String.fromCodePoint(text.codePointAt(start));
  return { kind: "unknown", start, end: start + character.length, text: character };
}

/**
 * All tokens with the kinds of identifiers: function, aggregation, keyword, label, metric or
 * number.
 */
export function classify(text) {
  const tokens = cut(text);
  const open = [];
  const solid = tokens.filter((token) => token.kind !== "space" && token.kind !== "comment");
  solid.forEach((token, index) => {
    const [previous, following] = [solid[index - 1], solid[index + 1]];
    if (token.kind === "punctuation") {
      bracket(open, token, previous);
    } else if (token.kind === "identifier") {
      token.kind = kindOf(token.text, open.at(-1), following?.text);
    }
  });
  return tokens;
}

function bracket(open, token, previous) {
  if ("({[".includes(token.text)) {
    const isList = token.text === "(" && LISTS.has(previous?.text.toLowerCase());
    open.push({ text: token.text, isList });
  } else if (OPENING[token.text] && open.at(-1)?.text === OPENING[token.text]) {
    open.pop();
  }
}

function kindOf(word, inside, following) {
  if (inside?.text === "{" || inside?.isList) {
    return "label";
  }
  const lower = word.toLowerCase();
  if (AGGREGATIONS[lower] && /^(\(|by|without)$/i.test(following ?? "")) {
    return "aggregation";
  }
  if (FUNCTIONS[word] && following === "(") {
    return "function";
  }
  if (lower === "inf" || lower === "nan") {
    return "number";
  }
  return KEYWORDS[lower] ? "keyword" : "metric";
}
