/** The answers of the models, side by side: a card for each, with its record. */

import { madeOf } from "./chooser.js";
import { element } from "./graph/elements.js";
import { showRecord } from "./graph/record.js";
import { sentence } from "./notices.js";

/**
 * @typedef {{model: import("./api.js").Model, record?: object,
 *   failure?: import("./api.js").Failure}} Answer
 */

/**
 * Show the answers in their order. A model's card is kept from one text to the next.
 * @param {HTMLElement} host
 * @param {Answer[]} answers
 */
export function showCards(host, answers) {
  const old = new Map([...host.children].map((card) => [card.dataset.model, card]));
  const cards = answers.map(({ model }) => old.get(model.name) ?? emptyCard(model));
  const same =
    cards.length === host.children.length &&
    cards.every((card, place) => card === host.children[place]);
  if (!same) host.replaceChildren(...cards);
  // Drawing needs the width of the card, so that it comes after its place.
  answers.forEach((answer, place) => fill(cards[place], answer));
}

function emptyCard(model) {
  const title = element("h2", { text: model.name, dir: "auto" });
  const card = element(
    "article",
    { class: "card", "aria-label": `Answer of ${model.name}` },
    element("header", {}, title, element("p", { text: madeOf(model) })),
    element("div", { class: "record" }),
  );
  card.dataset.model = model.name;
  return card;
}

function fill(card, { record, failure }) {
  const host = card.querySelector(":scope > .record");
  if (record) showRecord(host, record);
  else host.replaceChildren(problem(failure));
}

function problem({ message }) {
  return element("p", { class: "problem", role: "alert", text: sentence(message) });
}
