// Colours of series, counts and quantiles, for a light and for a dark background.

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

/** Colours of counts from few to many: red, green, blue. */
const HEAT_LIGHT = [
  [226, 238, 251],
  [120, 178, 240],
  [21, 101, 192],
  [10, 33, 84],
];
const HEAT_DARK = [
  [24, 46, 74],
  [32, 94, 168],
  [88, 166, 255],
  [232, 245, 255],
];
const QUANTILES_LIGHT = ["#1a7f37", "#d9480f", "#b3125d"];
const QUANTILES_DARK = ["#4ac26b", "#ffb03a", "#ff6fae"];

/** The colour of a count by its share of the largest; small shares remain visible. */
export function heatColour(share, isDark) {
  const stops = isDark ? HEAT_DARK : HEAT_LIGHT;
  const position = Math.sqrt(Math.max(0, Math.min(1, share))) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(position));
  const parts = stops[index].map((from, part) =>
    Math.round(from + (stops[index + 1][part] - from) * (position - index)),
  );
  return `rgb(${parts.join(" ")})`;
}

/** The colour of a quantile's line by its place. */
export function quantileColour(index, isDark) {
  const colours = isDark ? QUANTILES_DARK : QUANTILES_LIGHT;
  return colours[index % colours.length];
}
