/** Interactive graph: words in reading order, arcs between them, and controls. */

import { arcPaths } from "./arcs.js";
import { detailsElement, showDetails } from "./details.js";
import { element, svgElement } from "./elements.js";
import {
  createView,
  incomingFlows,
  outgoingFlows,
  sortedStrengths,
  strongEdges,
} from "./numbers.js";
import { copyButtons } from "./picture.js";
import { thresholdSlider } from "./threshold.js";
import { wordList } from "./words.js";

const MAX_OWN_ARCS = 12; // incoming arcs of the active word, and outgoing arcs
const LONG_TEXT = 60; // words from which controls and details stay visible

/**
 * @param {object} graph graph of a record
 * @param {object} options
 * @param {string} options.name label of the list of words, for screen readers
 * @param {string[]} [options.labels] texts to show instead of the nodes
 * @param {string[]} [options.names] names of the nodes in the details, if not the labels
 * @param {number | null} [options.pinned] node that is pinned initially
 * @param {(node: number | null) => void} [options.onPin]
 * @param {string} [options.caption] caption of copied images
 * @param {{head?: number | null, perNode?: number}} [options.settings] choices for the
 *   previous graph, which are updated for the next
 * @param {HTMLElement} [options.details] element for the details, if not below the words
 * @returns {HTMLElement}
 */
export function graphElement(graph, options) {
  const { name, pinned, onPin, caption, settings = {} } = options;
  const labels = options.labels ?? graph.nodes;
  const names = options.names ?? labels;
  const arcs = svgElement("svg", { class: "arcs", "aria-hidden": "true" });
  const details = options.details ?? detailsElement();
  const words = wordList(
    { labels, names, name, pinned },
    { onActivate: activate, onPin: (node) => onPin?.(node) },
  );
  const canvas = element("div", { class: "canvas" }, arcs, words.list);
  const controls = element("div", { class: "controls" });
  const root = element("div", { class: "graph" }, controls, canvas);
  if (!options.details) root.append(details);

  let view = createView(graph, null);
  let active = pinned ?? null;
  let threshold = Infinity;
  let layout = null;
  const slider = thresholdSlider(settings, (strength) => {
    threshold = strength;
    draw();
  });

  const hasEdges = Boolean(view.edges) && view.count > 1;
  root.classList.toggle("no-edges", !hasEdges);
  root.classList.toggle("long", view.count > LONG_TEXT);
  if (hasEdges) controls.append(slider.control);
  if (settings.head === undefined || settings.head >= graph.heads.length) {
    settings.head = null;
  }
  if (graph.heads.length > 1) {
    controls.append(headSelect(graph, settings.head, chooseHead));
  }
  if (view.count) controls.append(copyButtons(() => ({ canvas, caption })));

  function chooseHead(head) {
    settings.head = head;
    view = createView(graph, head);
    words.shade(view);
    if (hasEdges) slider.setStrengths(sortedStrengths(view), view.count);
    showDetails(details, view, names, active);
  }

  function activate(node) {
    active = node;
    showDetails(details, view, names, node);
    draw();
  }

  /** Measure the words and redraw. A hidden graph has no layout and is not drawn. */
  function measure() {
    layout = canvas.clientWidth ? measureLayout(canvas, words.words) : null;
    draw();
  }

  function draw() {
    if (!layout || !hasEdges) return;
    arcs.setAttribute("width", layout.width);
    arcs.setAttribute("height", layout.height);
    const groups = [arcGroup("all", strongEdges(view, threshold), layout)];
    if (active !== null) {
      const isOther = (flow) => flow.node !== active;
      const incoming = incomingFlows(view, active).filter(isOther).slice(0, MAX_OWN_ARCS);
      const outgoing = outgoingFlows(view, active).filter(isOther).slice(0, MAX_OWN_ARCS);
      const inEdges = incoming.map((flow) => flowEdge(flow, flow.node, active));
      const outEdges = outgoing.map((flow) => flowEdge(flow, active, flow.node));
      groups.push(arcGroup("in", inEdges, layout), arcGroup("out", outEdges, layout));
    }
    arcs.classList.toggle("highlighting", active !== null);
    arcs.replaceChildren(...groups);
  }

  chooseHead(settings.head);
  new ResizeObserver(measure).observe(canvas);
  return root;
}

function flowEdge({ share }, from, to) {
  return { from, to, strength: share };
}

function arcGroup(name, edges, layout) {
  const group = svgElement("g", { class: name });
  for (const { lines, heads, level } of arcPaths(edges, layout.positions, layout)) {
    if (!lines) continue;
    const opacity = (0.12 + 0.88 * level ** 1.5).toFixed(2);
    const width = 0.8 + level;
    group.append(
      svgElement("path", { class: "arc", d: lines, opacity, "stroke-width": width }),
      svgElement("path", { class: "tip", d: heads, opacity }),
    );
  }
  return group;
}

function headSelect(graph, selected, onChange) {
  const option = (value, text) =>
    element("option", { value, text, selected: value === String(selected ?? "") });
  const select = element(
    "select",
    {
      class: "heads",
      onchange: () => onChange(select.value === "" ? null : Number(select.value)),
    },
    option("", `all ${graph.heads.length} (mean)`),
    ...graph.heads.map((_, head) => option(String(head), head)),
  );
  const label = element("span", { text: "Head" });
  return element("label", { class: "control" }, label, select);
}

/** Reserve space for arcs above the lines, and return the positions of the words. */
function measureLayout(canvas, words) {
  const centers = words.map((word) => word.offsetLeft + word.offsetWidth / 2);
  const span = Math.max(...centers) - Math.min(...centers) || 1;
  const lineCount = new Set(words.map((word) => word.offsetTop)).size;
  const headroom = lineCount > 1 ? 44 : Math.min(130, 24 + span / 6);
  canvas.style.setProperty("--headroom", `${headroom + 6}px`);
  const tops = [...new Set(words.map((word) => word.offsetTop))].sort((a, b) => a - b);
  const lines = new Map(tops.map((top, line) => [top, line]));
  const positions = words.map((word, node) => ({
    x: centers[node],
    top: word.offsetTop,
    bottom: word.offsetTop + word.offsetHeight,
    line: lines.get(word.offsetTop),
  }));
  const { clientWidth: width, clientHeight: height } = canvas;
  return { positions, headroom, span, width, height };
}
