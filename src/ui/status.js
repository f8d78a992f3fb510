// The status pages: each path is one part, built from answers of the server.

import { cardinality } from "./cardinality.js";
import { button, el, markCurrent, pageLink } from "./dom.js";
import { activeQueries, topQueries } from "./queries.js";
import { config, flags, runtime } from "./runtime.js";
import { store } from "./store.js";
import { alerts, rules, serviceDiscovery, targets } from "./watched.js";

/** Time after which a part that loads can be canceled, in ms. */
const PATIENCE_MS = 300;

/**
 * Parts by path: name, and the function that builds the elements. It gets the parameters of the
 * address (`search`), `go(address)`, a `signal` that ends requests, and `refresh()`.
 */
const PARTS = {
  status: ["Runtime and build", runtime],
  store: ["Store", store],
  "tsdb-status": ["Cardinality", cardinality],
  "top-queries": ["Top queries", topQueries],
  "active-queries": ["Active queries", activeQueries],
  flags: ["Flags", flags],
  config: ["Configuration", config],
  targets: ["Targets", targets],
  "service-discovery": ["Service discovery", serviceDiscovery],
  rules: ["Rules", rules],
  alerts: ["Alerts", alerts],
};

/** The paths of the status pages. */
export const statusPaths = Object.keys(PARTS);

/** The page: { element, title, enter(search, path), leave() }. */
export class StatusPage {
  title = "Status";
  search = "";

  constructor({ go }) {
    this.go = go;
    const links = Object.entries(PARTS).map(([path, [name]]) => pageLink(name, path, go));
    this.links = el("nav", { class: "parts", "aria-label": "Parts of the status" }, links);
    this.holder = el("div", { class: "panel part" });
    this.element = el("div", {}, this.links, this.holder);
  }

  async enter(search, path) {
    const [name, build] = PARTS[path] ?? PARTS.status;
    this.title = name;
    markCurrent(this.links.children, (link) => link.textContent === name);
    this.aborter?.abort();
    const aborter = new AbortController();
    this.aborter = aborter;
    const { signal } = aborter;
    const refresh = () => this.enter(search, path);
    const context = { search: new URLSearchParams(search), go: this.go, signal, refresh };
    const timer = setTimeout(() => this.#wait(name, aborter, refresh), PATIENCE_MS);
    let shown;
    try {
      shown = await build(context);
    } catch (error) {
      shown = [el("p", { class: "message", role: "alert" }, error.message)];
    } finally {
      clearTimeout(timer);
    }
    if (!signal.aborted) {
      this.#show(name, shown);
    }
  }

  /** Shows a part, and moves the focus to the element that had it before. */
  #show(name, shown) {
    const focused = this.holder.contains(document.activeElement) && nameOf(document.activeElement);
    this.holder.replaceChildren(el("h1", {}, name), ...shown);
    if (focused) {
      const elements = [...this.holder.querySelectorAll("button, select, input, a")];
      elements.find((element) => nameOf(element) === focused)?.focus();
    }
  }

  /** Says that a part loads, with a button that cancels its requests. */
  #wait(name, aborter, refresh) {
    const cancel = () => {
      aborter.abort();
      const again = button("Try again", refresh);
      this.#show(name, [el("p", { class: "hint", role: "status" }, "Canceled. "), again]);
      again.focus();
    };
    const line = el("p", { class: "hint", role: "status" }, "Loading … ");
    this.holder.prepend(el("div", { class: "tools-line loading" }, line, button("Cancel", cancel)));
  }

  leave() {
    this.aborter?.abort();
  }

  focus() {
    this.links.querySelector("a").focus();
  }
}

/** The name of an element that can be focused. */
function nameOf(element) {
  return element.ariaLabel ?? element.textContent;
}
