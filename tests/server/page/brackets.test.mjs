// Brackets and quotes that close themselves.

import assert from "node:assert/strict";
import { test } from "node:test";

import { deleted, typed } from "../../../src/ui/brackets.js";

/** The text after a key, where [ and ] mark the selection and | the cursor. */
function after(marked, key) {
  const start = marked.indexOf("|");
  const text = marked.replaceAll("|", "");
  const end = marked.lastIndexOf("|") - (marked.lastIndexOf("|") > start ? 1 : 0);
  const edit = key === "Backspace" ? deleted(text, start, end) : typed(text, start, end, key);
  if (edit === null) {
    return null;
  }
  const changed = text.slice(0, edit.from) + edit.insert + text.slice(edit.to);
  const inside = changed.slice(edit.start, edit.end);
  const selected = edit.start === edit.end ? "|" : `|${inside}|`;
  return changed.slice(0, edit.start) + selected + changed.slice(edit.end);
}

test("a bracket that is opened is closed, and typing over the closing one moves on", () => {
  const cases = [
    ["sum|", "(", "sum(|)"],
    ["sum(|)", ")", "sum()|"],
    ["x|", "{", "x{|}"],
    ["x{a=|}", '"', 'x{a="|"}'],
    ['x{a="b|"}', '"', 'x{a="b"|}'],
    ["x{a=|", "'", "x{a='|'"],
    ["x|", "[", "x[|]"],
    ["|a + b|", "(", "(|a + b|)"],
    // Not before a word, in texts or in comments, nor where a quote ends a word.
    ["|abc", "(", null],
    ['x{a="b|"}', "(", null],
    ["# no|", "(", null],
    ['x{a="b|', '"', null],
    ["it|", "'", null],
    ["x|", ")", null],
    // A backslash keeps the quote open.
    ['x{a="b\\|"', '"', null],
  ];
  for (const [marked, key, expected] of cases) {
    assert.equal(after(marked, key), expected, `${key} in ${marked}`);
  }
});

test("an empty pair is deleted as a whole", () => {
  assert.equal(after("sum(|)", "Backspace"), "sum|");
  assert.equal(after('x{a="|"}', "Backspace"), "x{a=|}");
  assert.equal(after("sum(x|)", "Backspace"), null);
  assert.equal(after("sum(|", "Backspace"), null);
  assert.equal(after("|()", "Backspace"), null);
});
