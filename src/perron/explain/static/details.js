/** Details of a word: its weight, and its strongest incoming and outgoing flows. */

import { element } from "./elements.js";
import { formatPercent, incomingFlows, outgoingFlows } from "./numbers.js";

const MAX_FLOWS = 5; // listed separately; the others are summed

/** Create the element for the details. Screen readers announce its changes. */
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
  const weight = view.weights
    ? ` has ${formatPercent(view.weights[node])} of the weight.`
    : "";
  const title = element("p", {}, element("b", { text: names[node] }), weight);
  if (!view.edges) {
    host.replaceChildren(title);
    return;
  }
  host.replaceChildren(
    title,
    flowList("in", "Incoming", incomingFlows(view, node), names, node),
    flowList("out", "Outgoing", outgoingFlows(view, node), names, node),
  );
}

function hint(view) {
  if (!view.count) return "";
  if (!view.weights) return "";
  if (!view.edges) return "Hover over a word, or use the arrow keys, to see its weight.";
  return (
    "Hover over a word, or use the arrow keys, to see where its importance comes from " +
    "and where it goes."
  );
}

function flowList(direction, caption, flows, names, node) {
  const listed = flows.slice(0, MAX_FLOWS);
  const others = flows.slice(MAX_FLOWS).reduce((sum, { share }) => sum + share, 0);
  const total = flows.reduce((sum, { share }) => sum + share, 0) || 1;
  const items = listed.map((flow) =>
    flowBar(flow.node === node ? "itself" : names[flow.node], flow.share, total),
  );
  if (flows.length > MAX_FLOWS) {
    items.push(flowBar(`${flows.length - MAX_FLOWS} more`, others, total));
  }
  return element(
    "div",
    { class: `flow ${direction}` },
    element("p", { text: caption }),
    element("ul", {}, ...items),
  );
}

function flowBar(label, share, total) {
  const item = element(
    "li",
    {},
    element("span", { class: "name", text: label, dir: "auto" }),
    element("span", { class: "share", text: formatPercent(share) }),
  );
  item.style.setProperty("--share", (share / total).toFixed(3));
  return item;
}
