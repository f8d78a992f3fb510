// The colours of series, told apart on a light and on a dark ground.

const LIGHT = [
  "#1f6feb",
  "#c4450c",
  "#1a7f37",
  "#8250df",
  "#b35900",
  "#0a7ea4",
  "#bf3989",
  "#6e7781",
  "#57760c",
  "#a40e26",
  "#3b5bdb",
  "#8a5a00",
];
const DARK = [
  "#58a6ff",
  "#ff8c5a",
  "#4ac26b",
  "#bc8cff",
  "#f0b429",
  "#39c5cf",
  "#ff7bc0",
  "#a0aab5",
  "#a8c83c",
  "#ff6b6b",
  "#8da2fb",
  "#d9a441",
];

/** The colour of a series by its place. */
export function colour(index, isDark) {
  const colours = isDark ? DARK : LIGHT;
  return colours[index % colours.length];
}
