// Elements, made in one call.

/**
 * An element with its properties and children. Properties that begin with "on" are listeners,
 * `dataset` and `aria-…` are what they are called; what is null or false is left out.
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

/** Marks the one of some links that leads to what is shown. */
export function markCurrent(links, isHere) {
  for (const link of links) {
    if (isHere(link)) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

/** Whether a click on a link is to be answered by this page: the browser opens tabs itself. */
export function isPlainClick(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0);
}

/** Runs a function once calls have ceased for a while; `cancel` drops a run that is due. */
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

/** A name for an element that nobody else has. */
export function newId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}
