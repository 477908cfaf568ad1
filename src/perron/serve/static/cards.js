/** Results of the models, side by side, with one card per model. */

import { architecture } from "./chooser.js";
import { element } from "./graph/elements.js";
import { showRecord } from "./graph/record.js";
import { sentence } from "./notices.js";

/**
 * @typedef {{model: import("./api.js").Model, record?: object,
 *   error?: import("./api.js").RequestError}} Result
 */

/**
 * Show results in order. The card of a model is reused for its next result.
 * @param {HTMLElement} host
 * @param {Result[]} results
 */
export function showCards(host, results) {
  const existing = new Map([...host.children].map((card) => [card.dataset.model, card]));
  const cards = results.map(({ model }) => existing.get(model.name) ?? createCard(model));
  const isUnchanged =
    cards.length === host.children.length &&
    cards.every((card, index) => card === host.children[index]);
  if (!isUnchanged) host.replaceChildren(...cards);
  // Drawing needs the width of the card, so the card must be in the page first.
  results.forEach((result, index) => fillCard(cards[index], result));
}

function createCard(model) {
  const title = element("h2", { text: model.name, dir: "auto" });
  const card = element(
    "article",
    { class: "card", "aria-label": `Result of ${model.name}` },
    element("header", {}, title, element("p", { text: architecture(model) })),
    element("div", { class: "record" }),
  );
  card.dataset.model = model.name;
  return card;
}

function fillCard(card, { record, error }) {
  const host = card.querySelector(":scope > .record");
  if (record) showRecord(host, record);
  else host.replaceChildren(errorText(error));
}

function errorText({ message }) {
  return element("p", { class: "error", role: "alert", text: sentence(message) });
}
