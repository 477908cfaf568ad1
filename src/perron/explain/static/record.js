/** A record as a whole: the prediction, and a graph for each text or sentence. */

import { detailsElement } from "./details.js";
import { element } from "./elements.js";
import { graphElement } from "./graph.js";
import { percent } from "./numbers.js";

// How people want to see the graphs of a host: its next record is shown in the same way.
const habits = new WeakMap();

/**
 * Show a record; what the host held before is gone.
 * @param {HTMLElement} host
 * @param {object} record see docs/graph.md
 */
export function showRecord(host, record) {
  if (!habits.has(host)) habits.set(host, { words: {}, sentences: {} });
  const kept = habits.get(host);
  const graphs = record.sentences ? documentParts(record, kept) : textParts(record, kept);
  host.replaceChildren(prediction(record), ...notes(record), ...graphs);
}

function prediction({ label, probabilities }) {
  const bars = Object.entries(probabilities).map(([name, share]) => {
    const item = element(
      "li",
      { class: name === label ? "best" : null },
      element("span", { class: "name", text: name, dir: "auto" }),
      element("span", { class: "share", text: percent(share) }),
    );
    item.style.setProperty("--part", share.toFixed(3));
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
  const told = [];
  const graphs = sentences ? [...words, sentences] : words;
  const weighs = graphs.some((graph) => graph.weights);
  const points = graphs.some((graph) => graph.heads.some((head) => head.edges));
  if (!graphs.some((graph) => graph.nodes.length)) {
    told.push(note("no-words", "There is no word in this text."));
  } else if (!weighs) {
    told.push(
      note(
        "no-graph",
        `No graph: ${model.aggregator} pooling has no weight for a word, so there is ` +
          "nothing to shade and nothing to connect.",
      ),
    );
  } else if (!points) {
    told.push(
      note(
        "no-graph",
        `No graph: ${model.aggregator} pooling weighs each word by itself, without ` +
          "edges between words.",
      ),
    );
  }
  return told;
}

function note(kind, text) {
  return element("p", { class: `note ${kind}`, text });
}

function textParts(record, kept) {
  const shared = { about: caption(record), kept: kept.words };
  if (record.pair === null) {
    return graphWithNote(record.words[0], { name: "Words", ...shared });
  }
  const details = detailsElement();
  const parts = ["Premise", "Hypothesis"].flatMap((name, part) => [
    heading(name),
    ...graphWithNote(record.words[part], { name, details, ...shared }),
  ]);
  return [...parts, details];
}

/** The sentences as a bar of numbers, and below it the words of the one that is held. */
function documentParts(record, kept) {
  const { sentences, words } = record;
  if (!sentences.nodes.length) return [];
  const about = caption(record);
  const weights = sentences.weights ?? [1];
  const heaviest = weights.indexOf(Math.max(...weights));
  const inside = element("div", { class: "inside" });
  const details = detailsElement();
  const show = (node) => {
    if (node === null) return;
    const name = `Words of sentence ${node + 1}`;
    inside.replaceChildren(
      heading(name),
      ...graphWithNote(words[node], { name, about, details, kept: kept.words }),
    );
  };
  show(heaviest);
  const [bar, ...cut] = graphWithNote(sentences, {
    name: "Sentences",
    labels: sentences.nodes.map((_, node) => String(node + 1)),
    names: sentences.nodes.map((_, node) => `Sentence ${node + 1}`),
    hold: heaviest,
    onhold: show,
    about,
    details,
    kept: kept.sentences,
  });
  bar.classList.add("sentences");
  bar.querySelectorAll(".word").forEach((word, node) => {
    word.title = sentences.nodes[node];
  });
  return [heading("Sentences"), bar, ...cut, inside, details];
}

function graphWithNote(graph, options) {
  const made = graphElement(graph, options);
  if (!graph.truncated) return [made];
  return [made, cutNote(graph, options.labels ? "sentences" : "words")];
}

function heading(text) {
  return element("h3", { class: "part", text });
}

function cutNote(graph, unit) {
  return note(
    "cut",
    `The text goes on, but this model reads only the first ${graph.nodes.length} ${unit}.`,
  );
}

function caption({ model, label, probabilities }) {
  return `${model.name} (${model.aggregator}): ${label}, ${percent(probabilities[label])}`;
}
