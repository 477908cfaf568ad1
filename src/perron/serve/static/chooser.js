/** Choice of one or more models of the same kind. */

import { element } from "./graph/elements.js";

const INPUTS = { text: "single texts", pair: "pairs", document: "documents" };

/**
 * Fill the host with a checkbox for each model.
 * @param {HTMLElement} host
 * @param {import("./api.js").Model[]} models
 * @param {(message: string) => void} onChange called with a message, which may be empty
 */
export function modelChooser(host, models, onChange) {
  const checkboxes = models.map((model) =>
    element("input", { type: "checkbox", onchange: (event) => toggled(event, model) }),
  );
  const chips = models.map((model, index) =>
    element(
      "label",
      { class: "chip" },
      checkboxes[index],
      element("span", { class: "name", text: model.name, dir: "auto" }),
      ...poolingLabel(model),
    ),
  );
  const kinds = [...new Set(models.map(({ kind }) => kind))];
  host.replaceChildren(
    ...kinds.map((kind) =>
      element(
        "fieldset",
        {},
        element("legend", { text: kinds.length > 1 ? modelsFor(kind) : "Models" }),
        ...chips.filter((_, index) => models[index].kind === kind),
      ),
    ),
  );

  function selected() {
    return models.filter((_, index) => checkboxes[index].checked);
  }

  function toggled(event, model) {
    const others = selected().filter(({ kind }) => kind !== model.kind);
    if (!event.target.checked || !others.length) return onChange("");
    deselectOtherKinds(model.kind);
    const names = others.map(({ name }) => name).join(", ");
    onChange(
      `${modelsFor(model.kind)} cannot be compared with ` +
        `${modelsFor(others[0].kind).toLowerCase()}. Deselected ${names}.`,
    );
  }

  function deselectOtherKinds(kind) {
    models.forEach((model, index) => {
      if (model.kind !== kind) checkboxes[index].checked = false;
    });
  }

  /**
   * Select the models with these names that are of the same kind as the first. Without
   * any, select the first model. Return the names that do not exist.
   * @param {string[]} names
   */
  function select(names) {
    const known = models.filter(({ name }) => names.includes(name));
    const kind = (known[0] ?? models[0])?.kind;
    models.forEach((model, index) => {
      checkboxes[index].checked = known.length ? known.includes(model) : index === 0;
    });
    deselectOtherKinds(kind);
    return names.filter((name) => !known.some((model) => model.name === name));
  }

  return { selected, select };
}

function modelsFor(kind) {
  return `Models for ${INPUTS[kind]}`;
}

/** Return a label with the aggregator, unless the name of the model contains it. */
function poolingLabel({ name, aggregator }) {
  if (name.includes(aggregator)) return [];
  return [" ", element("span", { class: "pooling", text: aggregator })];
}

/** Return the encoder and the aggregator of a model, such as "bilstm, centrality". */
export function architecture({ encoder, aggregator }) {
  return [encoder, aggregator].filter((part) => part !== "none").join(", ");
}
