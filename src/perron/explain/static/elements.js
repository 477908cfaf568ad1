/** Functions that create elements without parsing markup, so texts cannot inject any. */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element.
 * @param {string} name
 * @param {Record<string, unknown>} attributes `text` is the text content, and `on…` are
 *   event listeners
 * @param {...Node} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  return populate(document.createElement(name), attributes, children);
}

/** Create an SVG element, with the same arguments. */
export function svgElement(name, attributes = {}, ...children) {
  return populate(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function populate(target, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") target.textContent = value;
    else if (name.startsWith("on")) target.addEventListener(name.slice(2), value);
    else target.setAttribute(name, value === true ? "" : value);
  }
  target.append(...children);
  return target;
}
