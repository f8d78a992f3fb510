// Brackets and quotes that close themselves: the edit that replaces a typed character.

import { classify } from "./lexer.js";

const CLOSING = { "(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`" };
/** A string up to its last quote. */
const CLOSED = /^("([^"\\]|\\.)*"|'([^'\\]|\\.)*'|`[^`]*`)$/;
const QUOTES = new Set(['"', "'", "`"]);

/**
 * Returns the edit for a character typed over `text[start..end]`, or null if the character is
 * inserted as usual. An edit replaces `from` to `to` by `insert` and selects `start` to `end`.
 */
export function typed(text, start, end, character) {
  const next = text[end] ?? "";
  if (start === end && next === character && isClosing(character) && endsHere(text, start)) {
    return { from: start, to: start, insert: "", start: start + 1, end: start + 1 };
  }
  const closing = CLOSING[character];
  if (closing === undefined || isInText(text, start)) {
    return null;
  }
  if (start < end) {
    const insert = character + text.slice(start, end) + closing;
    return { from: start, to: end, insert, start: start + 1, end: end + 1 };
  }
  const isFree = next === "" || /[\s)\]},]/.test(next);
  const isAfterWord = QUOTES.has(character) && /[\w"'`]/.test(text[start - 1] ?? "");
  if (!isFree || isAfterWord) {
    return null;
  }
  return { from: start, to: start, insert: character + closing, start: start + 1, end: start + 1 };
}

/** Returns the edit for a deletion to the left: an empty pair disappears as a whole, or null. */
export function deleted(text, start, end) {
  const isEmptyPair = start === end && start > 0 && CLOSING[text[start - 1]] === text[start];
  if (!isEmptyPair || text[start] === undefined) {
    return null;
  }
  return { from: start - 1, to: start + 1, insert: "", start: start - 1, end: start - 1 };
}

function isClosing(character) {
  return QUOTES.has(character) || ")]}".includes(character);
}

/** Returns whether the character after the position closes what is open at the position. */
function endsHere(text, position) {
  const token = tokenAround(text, position);
  const isEnd = token?.kind === "string" && token.end === position + 1;
  return token === undefined || (isEnd && CLOSED.test(token.text));
}

function isInText(text, position) {
  const token = tokenAround(text, position);
  return token?.kind === "string" || token?.kind === "comment";
}

/** The token that begins before a position and ends after it, or an open string or comment. */
function tokenAround(text, position) {
  return classify(text).find(
    ({ kind, start, end, text: part }) =>
      start < position && (end > position || (end === position && isOpen(kind, part))),
  );
}

function isOpen(kind, text) {
  return kind === "comment" || (kind === "string" && !CLOSED.test(text));
}
