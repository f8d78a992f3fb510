// Elements with properties and children, in one call.

/**
 * An element with its properties and children. Properties that begin with "on" are listeners; null
 * and false are left out.
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (name === "dataset") {
      Object.assign(element.dataset, value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text that may be broken after the signs in it, so that a long name is not broken in a word. */
export function breakable(text) {
  const parts = text.match(/[^_:./-]+[_:./-]*|[_:./-]+/g) ?? [];
  return parts.flatMap((part, index) => (index > 0 ? [el("wbr"), part] : [part]));
}

/** A button with a text, or with a sign and the text as its name. */
export function button(text, onclick, { sign = null, ...properties } = {}) {
  const names = sign === null ? {} : { "aria-label": text, title: text };
  return el("button", { type: "button", onclick, ...names, ...properties }, sign ?? text);
}

/** A choice of a few values, given as pairs of value and text. */
export function select(label, options, value, onchange) {
  const element = el(
    "select",
    { "aria-label": label, onchange: () => onchange(element.value) },
    options.map(([option, text]) =>
      el("option", { value: option, selected: option === value }, text),
    ),
  );
  return element;
}

/** Marks the link that leads to the current page. */
export function markCurrent(links, isHere) {
  for (const link of links) {
    if (isHere(link)) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

/** Returns whether the page handles a click on a link; the browser opens tabs and windows itself. */
export function isPlainClick(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0);
}

/** A link to another page of this server, which a plain click opens by `go(address)`. */
export function pageLink(content, address, go, properties = {}) {
  const link = el("a", { href: address, ...properties }, content);
  link.addEventListener("click", (event) => {
    if (isPlainClick(event)) {
      event.preventDefault();
      go(address);
    }
  });
  return link;
}

/** Runs a function `wait` ms after the last call; `cancel` drops a run that is due. */
export function debounced(wait, run) {
  let timer = 0;
  const call = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), wait);
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}

let ids = 0;

/** A unique id for an element. */
export function newId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}
