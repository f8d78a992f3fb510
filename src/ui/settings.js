// Settings that the browser keeps: theme, time zone and query history.

const QUERIES_MAX = 50;

const listeners = new Set();

function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`tessella.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(`tessella.${name}`, JSON.stringify(value));
  } catch {
    // Some browsers keep nothing; the choice then holds for this page.
  }
}

let isUtc = read("utc", false) === true;

/** The current settings. */
export const settings = {
  /** "auto", "light" or "dark". */
  get theme() {
    return document.documentElement.dataset.theme ?? "auto";
  },

  set theme(theme) {
    if (theme === "auto") {
      delete document.documentElement.dataset.theme;
    } else {
      document.documentElement.dataset.theme = theme;
    }
    write("theme", theme);
    tell();
  },

  /** Returns whether times are shown in UTC. */
  get isUtc() {
    return isUtc;
  },

  set isUtc(value) {
    isUtc = value;
    write("utc", value);
    tell();
  },
};

/** Returns whether the page is shown in dark colours. */
export function isDark() {
  const { theme } = settings;
  return theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
}

/** Calls back after each change of a setting. */
export function onChange(listener) {
  listeners.add(listener);
}

function tell() {
  listeners.forEach((listener) => listener());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);

/** Earlier queries, the latest first. */
export function recentQueries() {
  const queries = read("queries", []);
  return Array.isArray(queries) ? queries.filter((query) => typeof query === "string") : [];
}

/** Adds a query to the history. */
export function keepQuery(query) {
  const others = recentQueries().filter((other) => other !== query);
  write("queries", [query, ...others].slice(0, QUERIES_MAX));
}
