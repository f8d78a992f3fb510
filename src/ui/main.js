// The frame of all pages: routing by address, keys, buttons of the header.

import { button, el, isPlainClick, markCurrent } from "./dom.js";
import { ExplorePage } from "./explore.js";
import { QueryPage } from "./query.js";
import { settings } from "./settings.js";
import { StatusPage, statusPaths } from "./status.js";

const THEMES = { auto: ["◐", "Auto"], light: ["☀", "Light"], dark: ["☾", "Dark"] };
const KEYS = [
  ["/", "focus the query, or the search"],
  ["Enter", "run the query; take the suggestion that ↑ or ↓ has chosen"],
  ["Shift Enter", "new line"],
  ["↓ or Ctrl Space", "suggestions"],
  ["Tab", "take the chosen or the first suggestion"],
  ["← → in a graph", "move the cursor; with Shift by ten steps"],
  ["↑ ↓ in a graph", "move to another line or bucket"],
  ["+ − in a graph", "zoom in and out; a double click also zooms out"],
  ["e in a graph", "move to the next exemplar"],
  ["Alt ← (browser)", "undo a zoom or another change"],
  ["?", "list the keys"],
];

/** The title of the server, as --web.page-title has it. */
const siteTitle = document.title;
const main = document.querySelector("main");
const pages = {
  query: new QueryPage(),
  explore: new ExplorePage({ open, go }),
  status: new StatusPage({ go }),
};
/** Pages by the last part of their path. */
const paths = {
  "": "query",
  graph: "query",
  query: "query",
  explore: "explore",
  ...Object.fromEntries(statusPaths.map((path) => [path, "status"])),
};
let shown = null;

/** Shows the page of the address. */
async function route() {
  const path = location.pathname.split("/").at(-1);
  const name = paths[path] ?? "query";
  const page = pages[name];
  if (shown !== page) {
    shown?.leave();
    main.replaceChildren(page.element);
    shown = page;
  }
  const links = document.querySelectorAll("header nav a");
  markCurrent(links, (link) => link.getAttribute("href") === name);
  const entered = page.enter(location.search, path);
  document.title = `${page.title} · ${siteTitle}`;
  await entered;
  // Pages without a visible heading have one for screen readers.
  if (shown === page && main.querySelector("h1") === null) {
    main.prepend(el("h1", { class: "unseen" }, page.title));
  }
}

/** Goes to another page without loading the document again. */
function go(address) {
  history.pushState(null, "", address);
  route();
}

/** Adds queries to the page of queries. */
function open(queries) {
  go(`query?${pages.query.searchWith(queries)}`);
  pages.query.showLast();
}

document.querySelector("header nav").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const name = link?.getAttribute("href");
  if (name in pages && isPlainClick(event)) {
    event.preventDefault();
    const search = pages[name].search;
    go(search ? `${name}?${search}` : name);
  }
});
window.addEventListener("popstate", route);

const dialog = el(
  "dialog",
  { "aria-label": "Keys" },
  el("h2", {}, "Keys"),
  el(
    "dl",
    {},
    KEYS.map(([key, meaning]) => el("div", {}, el("dt", {}, key), el("dd", {}, meaning))),
  ),
  el("form", { method: "dialog" }, el("button", {}, "Close")),
);
document.body.append(dialog);

document.addEventListener("keydown", (event) => {
  const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    shown.focus();
  } else if (event.key === "?") {
    dialog.showModal();
  }
});

/** The buttons at the right of the header. */
function addChoices() {
  const zone = button("", () => {
    settings.isUtc = !settings.isUtc;
    tell();
  });
  const theme = button("", () => {
    const names = Object.keys(THEMES);
    settings.theme = names[(names.indexOf(settings.theme) + 1) % names.length];
    tell();
  });
  const tell = () => {
    zone.textContent = settings.isUtc ? "UTC" : "Local time";
    zone.title = `Times are shown in ${settings.isUtc ? "UTC" : "the time zone of this device"}`;
    const [sign, meaning] = THEMES[settings.theme];
    theme.replaceChildren(sign, el("span", { class: "state" }, meaning));
    theme.title = `Theme: ${settings.theme === "auto" ? "that of the system" : settings.theme}`;
    theme.setAttribute("aria-label", `Theme: ${meaning}`);
  };
  tell();
  const keys = button("Keys", () => dialog.showModal(), { sign: "?" });
  document.querySelector(".choices-of-page").append(zone, theme, keys);
}

addChoices();
route();
