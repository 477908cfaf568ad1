/** What there is to say about one word: what it weighs, from whom, and for whom. */

import { element } from "./elements.js";
import { incomingOf, outgoingOf, percent } from "./numbers.js";

const FIRST = 5; // sources and targets that are listed one by one

/** Return a place for it, which screen readers read out when it changes. */
export function detailsElement() {
  return element("div", { class: "details", "aria-live": "polite" });
}

/**
 * @param {HTMLElement} host
 * @param {import("./numbers.js").View} view
 * @param {string[]} names
 * @param {number | null} node
 */
export function showDetails(host, view, names, node) {
  if (node === null) {
    host.replaceChildren(element("p", { class: "hint", text: hint(view) }));
    return;
  }
  const weight = view.weights ? ` weighs ${percent(view.weights[node])}` : "";
  const title = element("p", {}, element("b", { text: names[node] }), `${weight}.`);
  if (!view.edges) {
    host.replaceChildren(title);
    return;
  }
  host.replaceChildren(
    title,
    flowList("in", "It comes from", incomingOf(view, node), names, node),
    flowList("out", "It passes on to", outgoingOf(view, node), names, node),
  );
}

function hint(view) {
  if (!view.count) return "";
  if (!view.weights) return "";
  if (!view.edges) return "Point at a word, or use the arrow keys, to see its weight.";
  return (
    "Point at a word, or use the arrow keys, to see where its importance comes from " +
    "and where it goes."
  );
}

function flowList(kind, caption, flows, names, node) {
  const shown = flows.slice(0, FIRST);
  const rest = flows.slice(FIRST).reduce((sum, { share }) => sum + share, 0);
  const total = flows.reduce((sum, { share }) => sum + share, 0) || 1;
  const items = shown.map((flow) =>
    bar(flow.node === node ? "itself" : names[flow.node], flow.share, total),
  );
  if (flows.length > FIRST) items.push(bar(`${flows.length - FIRST} more`, rest, total));
  return element(
    "div",
    { class: `flow ${kind}` },
    element("p", { text: caption }),
    element("ul", {}, ...items),
  );
}

function bar(label, share, total) {
  const item = element(
    "li",
    {},
    element("span", { class: "name", text: label, dir: "auto" }),
    element("span", { class: "share", text: percent(share) }),
  );
  item.style.setProperty("--part", (share / total).toFixed(3));
  return item;
}
