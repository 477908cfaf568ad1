/** View of a record: the prediction, and a graph for each text or sentence. */

import { detailsElement } from "./details.js";
import { element } from "./elements.js";
import { graphElement } from "./graph.js";
import { formatPercent } from "./numbers.js";

// Settings of the graphs in each host, which are kept for its next record.
const settingsByHost = new WeakMap();

/**
 * Show a record in place of the previous content.
 * @param {HTMLElement} host
 * @param {object} record see docs/graph.md
 */
export function showRecord(host, record) {
  if (!settingsByHost.has(host)) settingsByHost.set(host, { words: {}, sentences: {} });
  const settings = settingsByHost.get(host);
  const graphs = record.sentences
    ? documentGraphs(record, settings)
    : textGraphs(record, settings);
  host.replaceChildren(prediction(record), ...notes(record), ...graphs);
}

function prediction({ label, probabilities }) {
  const bars = Object.entries(probabilities).map(([name, probability]) => {
    const item = element(
      "li",
      { class: name === label ? "best" : null },
      element("span", { class: "name", text: name, dir: "auto" }),
      element("span", { class: "share", text: formatPercent(probability) }),
    );
    item.style.setProperty("--share", probability.toFixed(3));
    return item;
  });
  return element(
    "div",
    { class: "prediction" },
    element("p", { class: "label", text: label, dir: "auto" }),
    element("ul", { class: "probabilities", "aria-label": "Probabilities" }, ...bars),
  );
}

function notes({ model, words, sentences }) {
  const graphs = sentences ? [...words, sentences] : words;
  const hasWords = graphs.some((graph) => graph.nodes.length);
  const hasWeights = graphs.some((graph) => graph.weights);
  const hasEdges = graphs.some((graph) => graph.heads.some((head) => head.edges));
  if (!hasWords) return [note("no-words", "This text has no words.")];
  if (hasEdges) return [];
  const reason = hasWeights
    ? "weights each word separately, without edges between words."
    : "does not assign weights to words.";
  return [note("no-graph", `No graph: ${model.aggregator} pooling ${reason}`)];
}

function note(kind, text) {
  return element("p", { class: `note ${kind}`, text });
}

function textGraphs(record, settings) {
  const shared = { caption: caption(record), settings: settings.words };
  if (record.pair === null) {
    return graphWithNote(record.words[0], { name: "Words", ...shared });
  }
  const details = detailsElement();
  const graphs = ["Premise", "Hypothesis"].flatMap((name, index) => [
    heading(name),
    ...graphWithNote(record.words[index], { name, details, ...shared }),
  ]);
  return [...graphs, details];
}

/** Return a bar with the numbers of the sentences, and the words of the pinned sentence. */
function documentGraphs(record, settings) {
  const { sentences, words } = record;
  if (!sentences.nodes.length) return [];
  const weights = sentences.weights ?? [1];
  const heaviest = weights.indexOf(Math.max(...weights));
  const wordGraph = element("div", { class: "sentence-words" });
  const details = detailsElement();
  const shared = { caption: caption(record), details };
  const showWords = (node) => {
    if (node === null) return;
    const name = `Words of sentence ${node + 1}`;
    const options = { name, settings: settings.words, ...shared };
    wordGraph.replaceChildren(heading(name), ...graphWithNote(words[node], options));
  };
  showWords(heaviest);
  const [bar, ...truncationNotes] = graphWithNote(sentences, {
    name: "Sentences",
    labels: sentences.nodes.map((_, node) => String(node + 1)),
    names: sentences.nodes.map((_, node) => `Sentence ${node + 1}`),
    pinned: heaviest,
    onPin: showWords,
    settings: settings.sentences,
    ...shared,
  });
  bar.classList.add("sentences");
  bar.querySelectorAll(".word").forEach((word, node) => {
    word.title = sentences.nodes[node];
  });
  return [heading("Sentences"), bar, ...truncationNotes, wordGraph, details];
}

function graphWithNote(graph, options) {
  const root = graphElement(graph, options);
  if (!graph.truncated) return [root];
  const unit = options.labels ? "sentences" : "words";
  const text = `Truncated: this model reads only the first ${graph.nodes.length} ${unit}.`;
  return [root, note("truncated", text)];
}

function heading(text) {
  return element("h3", { class: "part", text });
}

function caption({ model, label, probabilities }) {
  const probability = formatPercent(probabilities[label]);
  return `${model.name} (${model.aggregator}): ${label}, ${probability}`;
}
