/** One graph: words in reading order, arcs between them, and what changes the view. */

import { arcsOf } from "./arcs.js";
import { detailsElement, showDetails } from "./details.js";
import { drawing, element } from "./elements.js";
import {
  edgesFrom,
  incomingOf,
  outgoingOf,
  strengthsOf,
  viewOf,
} from "./numbers.js";
import { copyButtons } from "./picture.js";
import { thresholdSlider } from "./threshold.js";
import { wordList } from "./words.js";

const OWN = 12; // arcs into and out of the active word, at most
const LONG = 60; // words, from which on controls and details stay in sight

/**
 * @param {object} graph of a record
 * @param {object} options
 * @param {string} options.name of the list of words, for screen readers
 * @param {string[]} [options.labels] to show instead of the nodes
 * @param {string[]} [options.names] to call them by, if not by their labels
 * @param {number | null} [options.hold] the node that is held from the start
 * @param {(node: number | null) => void} [options.onhold]
 * @param {string} [options.about] what a copied picture says of itself
 * @param {{head?: number | null, perNode?: number}} [options.kept] what was chosen for
 *   the graph before this one, and will be for the next
 * @param {HTMLElement} [options.details] where to tell about words; else below them
 * @returns {HTMLElement}
 */
export function graphElement(graph, options) {
  const { name, hold, onhold, about, kept = {} } = options;
  const labels = options.labels ?? graph.nodes;
  const names = options.names ?? labels;
  const arcs = drawing("svg", { class: "arcs", "aria-hidden": "true" });
  const details = options.details ?? detailsElement();
  const words = wordList(
    { labels, names, name, hold },
    { activate, held: (node) => onhold?.(node) },
  );
  const canvas = element("div", { class: "canvas" }, arcs, words.list);
  const controls = element("div", { class: "controls" });
  const made = element("div", { class: "graph" }, controls, canvas);
  if (!options.details) made.append(details);

  let view = viewOf(graph, null);
  let active = hold ?? null;
  let least = Infinity;
  let place = null;
  const slider = thresholdSlider(kept, (strength) => {
    least = strength;
    draw();
  });

  const hasEdges = Boolean(view.edges) && view.count > 1;
  made.classList.toggle("plain", !hasEdges);
  made.classList.toggle("long", view.count > LONG);
  if (hasEdges) controls.append(slider.row);
  if (kept.head === undefined || kept.head >= graph.heads.length) kept.head = null;
  if (graph.heads.length > 1) controls.append(headSelect(graph, kept.head, chooseHead));
  if (view.count) controls.append(copyButtons(() => ({ canvas, about })));

  function chooseHead(head) {
    kept.head = head;
    view = viewOf(graph, head);
    words.shade(view);
    if (hasEdges) slider.offer(strengthsOf(view), view.count);
    showDetails(details, view, names, active);
  }

  function activate(node) {
    active = node;
    showDetails(details, view, names, node);
    draw();
  }

  /** Find the words on the screen; without a place on it there is nothing to draw. */
  function measure() {
    place = canvas.clientWidth ? placesOf(canvas, words.words) : null;
    draw();
  }

  function draw() {
    if (!place || !hasEdges) return;
    arcs.setAttribute("width", place.width);
    arcs.setAttribute("height", place.height);
    const groups = [group("all", edgesFrom(view, least), place)];
    if (active !== null) {
      const others = (flow) => flow.node !== active;
      const into = incomingOf(view, active).filter(others).slice(0, OWN);
      const out = outgoingOf(view, active).filter(others).slice(0, OWN);
      groups.push(
        group("in", into.map((one) => own(one, one.node, active)), place),
        group("out", out.map((one) => own(one, active, one.node)), place),
      );
    }
    arcs.classList.toggle("one", active !== null);
    arcs.replaceChildren(...groups);
  }

  chooseHead(kept.head);
  new ResizeObserver(measure).observe(canvas);
  return made;
}

function own({ share }, from, to) {
  return { from, to, strength: share };
}

function group(name, edges, place) {
  const made = drawing("g", { class: name });
  for (const { lines, heads, darkness } of arcsOf(edges, place.spots, place)) {
    if (!lines) continue;
    const opacity = (0.12 + 0.88 * darkness ** 1.5).toFixed(2);
    const width = 0.8 + darkness;
    made.append(
      drawing("path", { class: "arc", d: lines, opacity, "stroke-width": width }),
      drawing("path", { class: "tip", d: heads, opacity }),
    );
  }
  return made;
}

function headSelect(graph, chosen, changed) {
  const option = (value, text) =>
    element("option", { value, text, selected: value === String(chosen ?? "") });
  const select = element(
    "select",
    {
      class: "heads",
      onchange: () => changed(select.value === "" ? null : Number(select.value)),
    },
    option("", `all ${graph.heads.length}, their mean`),
    ...graph.heads.map((_, head) => option(String(head), head)),
  );
  const name = element("span", { text: "Head" });
  return element("label", { class: "control" }, name, select);
}

/** Make room for arcs above the lines of words, and return where the words stand. */
function placesOf(canvas, words) {
  const middles = words.map((word) => word.offsetLeft + word.offsetWidth / 2);
  const widest = Math.max(...middles) - Math.min(...middles) || 1;
  const lines = new Set(words.map((word) => word.offsetTop)).size;
  const room = lines > 1 ? 44 : Math.min(130, 24 + widest / 6);
  canvas.style.setProperty("--room", `${room + 6}px`);
  const tops = [...new Set(words.map((word) => word.offsetTop))].sort((a, b) => a - b);
  const lineOf = new Map(tops.map((top, line) => [top, line]));
  const spots = words.map((word, node) => ({
    x: middles[node],
    top: word.offsetTop,
    bottom: word.offsetTop + word.offsetHeight,
    line: lineOf.get(word.offsetTop),
  }));
  return { spots, room, widest, width: canvas.clientWidth, height: canvas.clientHeight };
}
