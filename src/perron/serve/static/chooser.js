/** Which models read the text: chips to tick, one or several of the same kind. */

import { element } from "./graph/elements.js";

const READS = { text: "one text", pair: "two texts", document: "documents" };

/**
 * Fill the host with a chip for each model.
 * @param {HTMLElement} host
 * @param {import("./api.js").Model[]} models
 * @param {(reason: string) => void} changed with a sentence, where something needs one
 */
export function modelChooser(host, models, changed) {
  const boxes = models.map((model) =>
    element("input", { type: "checkbox", onchange: (event) => ticked(event, model) }),
  );
  const chips = models.map((model, place) =>
    element(
      "label",
      { class: "chip" },
      boxes[place],
      element("span", { class: "name", text: model.name, dir: "auto" }),
      ...pooling(model),
    ),
  );
  const kinds = [...new Set(models.map(({ kind }) => kind))];
  host.replaceChildren(
    ...kinds.map((kind) =>
      element(
        "fieldset",
        {},
        element("legend", { text: legend(kind, kinds) }),
        ...chips.filter((_, place) => models[place].kind === kind),
      ),
    ),
  );

  function chosen() {
    return models.filter((_, place) => boxes[place].checked);
  }

  function ticked(event, model) {
    const others = chosen().filter(({ kind }) => kind !== model.kind);
    if (!event.target.checked || !others.length) return changed("");
    keepOnly(model.kind);
    const names = others.map(({ name }) => name).join(", ");
    changed(
      `${model.name} reads ${READS[model.kind]} and cannot stand beside ${names}, ` +
        `which read${others.length > 1 ? "" : "s"} ${READS[others[0].kind]}.`,
    );
  }

  function keepOnly(kind) {
    models.forEach((model, place) => {
      if (model.kind !== kind) boxes[place].checked = false;
    });
  }

  /**
   * Tick the models of these names, as far as they are of one kind; without any, the
   * first model. Return the names that there is no model for.
   * @param {string[]} names
   */
  function choose(names) {
    const known = models.filter(({ name }) => names.includes(name));
    const kind = (known[0] ?? models[0])?.kind;
    models.forEach((model, place) => {
      boxes[place].checked = known.length ? known.includes(model) : place === 0;
    });
    keepOnly(kind);
    return names.filter((name) => !known.some((model) => model.name === name));
  }

  return { chosen, choose };
}

function legend(kind, kinds) {
  return kinds.length > 1 ? `Models that read ${READS[kind]}` : "Models";
}

/** What models are compared for, unless the name says it already. */
function pooling({ name, aggregator }) {
  if (name.includes(aggregator)) return [];
  return [" ", element("span", { class: "pooling", text: aggregator })];
}

/** Say what a model is made of: bilstm, centrality. */
export function madeOf({ encoder, aggregator }) {
  return [encoder, aggregator].filter((part) => part !== "none").join(", ");
}
