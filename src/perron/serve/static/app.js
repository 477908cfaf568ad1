/** Viewer: explains the text with the selected models and shows the records. */

import { RequestError, explain, hasKey, listModels } from "./api.js";
import { showCards } from "./cards.js";
import { modelChooser } from "./chooser.js";
import { EXAMPLES } from "./examples.js";
import { textFields } from "./fields.js";
import { formatPercent } from "./graph/numbers.js";
import { parseLink, updateLink } from "./link.js";
import { emptyState, errorNotice, keyForm, textNotice } from "./notices.js";
import { debounce, withRetries } from "./retry.js";
import { copyText, downloadRecords } from "./save.js";

const byId = (id) => document.getElementById(id);
const fields = textFields(byId("text"), byId("pair"), handleInput);
const delayedUpdate = debounce(250, update);
const delayedAnnouncement = debounce(700, announce); // not at every pause in typing

let chooser = null; // until the models are loaded
let initialState = { models: [] };
let controller = new AbortController();
let results = [];

/** Load the models and restore the state of a link or of the page before a retry. */
async function start(state) {
  initialState = state;
  fields.content = state;
  const response = await load((signal, onStatus) =>
    withRetries(() => listModels(signal), signal, onStatus),
  );
  if (!response) return;
  byId("version").textContent = `Perron ${response.version}.`;
  chooser = modelChooser(byId("models"), response.models, (message) => {
    byId("status").textContent = message;
    update();
  });
  selectModels(initialState.models); // of the newest link
  await update();
}

function selectModels(names) {
  const missing = chooser.select(names).join(", ");
  byId("status").textContent = missing && `Model not found: ${missing}.`;
}

function handleInput() {
  if (!chooser) return; // the text is explained when the models are loaded
  controller.abort(); // pending results are outdated
  delayedAnnouncement.cancel();
  delayedUpdate.schedule();
}

/** Explain the text with the selected models, and show the results. */
async function update() {
  if (!chooser) return;
  delayedUpdate.cancel();
  controller.abort();
  const models = chooser.selected();
  const kind = models[0]?.kind;
  if (kind) fields.setKind(kind);
  const { text, pair } = fields.content;
  updateLink({ text, pair, models: models.map(({ name }) => name) });
  byId("clear").disabled = !text && !pair;
  if (!kind) return showNotice(textNotice("Choose a model, or several to compare."));
  if (fields.firstEmpty) return showNotice(invitation(kind, text || pair));
  const newResults = await load((signal, onStatus) => {
    const second = kind === "pair" ? pair : null;
    return Promise.all(
      models.map((model) =>
        withRetries(() => explain(model.name, text, second, signal), signal, onStatus).then(
          (record) => ({ model, record }),
          (error) => ({ model, error: expectRequestError(error) }),
        ),
      ),
    );
  });
  if (newResults) showResults(newResults);
}

/**
 * Run a request and return its result. Return null if a newer request has started, or if
 * it failed, in which case the error is shown.
 */
async function load(request) {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const onStatus = (message) => {
    byId("cards").setAttribute("aria-busy", "true");
    byId("progress").textContent = message;
  };
  const timer = setTimeout(onStatus, 300, "Analyzing…"); // only if it is slow
  try {
    const result = await request(signal, onStatus);
    return signal.aborted ? null : result;
  } catch (error) {
    if (error.name !== "AbortError") showError(expectRequestError(error));
    return null;
  } finally {
    clearTimeout(timer);
    if (!signal.aborted) {
      byId("cards").setAttribute("aria-busy", "false");
      byId("progress").textContent = "";
    }
  }
}

function expectRequestError(error) {
  if (error instanceof RequestError) return error;
  throw error;
}

function showResults(newResults) {
  const errors = newResults.flatMap(({ error }) => error ?? []);
  const first = errors[0];
  const hasCommonError =
    errors.length === newResults.length &&
    errors.every(({ message }) => message === first.message);
  const unauthorized = errors.find(({ status }) => status === 401);
  if (unauthorized || hasCommonError) return showError(unauthorized ?? first);
  results = newResults;
  byId("download").disabled = errors.length === results.length;
  replaceNotices();
  showCards(byId("cards"), results);
  delayedAnnouncement.schedule();
}

/** Show a notice in place of records. Return whether it differs from the previous one. */
function showNotice(notice) {
  byId("cards").setAttribute("aria-busy", "false");
  byId("progress").textContent = "";
  byId("cards").replaceChildren();
  results = [];
  byId("download").disabled = true;
  delayedAnnouncement.cancel();
  // Replacing a notice with the same one would announce it again and move the focus.
  if (byId("notice").textContent === notice.textContent) return false;
  replaceNotices(notice);
  return true;
}

function replaceNotices(...notices) {
  const hadFocus = byId("notice").contains(document.activeElement);
  byId("notice").replaceChildren(...notices);
  if (hadFocus) byId("results").focus(); // the focused button was removed
}

function showError(error) {
  const retry = () => start(currentState());
  if (error.status !== 401) return showNotice(errorNotice(error, retry));
  if (showNotice(keyForm(hasKey(), retry))) byId("key").focus();
}

function invitation(kind, hasText) {
  const message = hasText
    ? `Now enter the ${fields.firstEmpty.toLowerCase()}, or start with an example:`
    : "Type or paste a text above, or start with an example:";
  return emptyState(message, EXAMPLES[kind], (example) => {
    setText(example);
    fields.focus();
  });
}

function setText([text, pair = ""]) {
  fields.content = { text, pair };
  update();
}

/** Announce the predictions to screen readers. */
function announce() {
  byId("announcement").textContent = results
    .filter(({ record }) => record)
    .map(({ model, record: { label, probabilities } }) => {
      return `${model.name}: ${label}, ${formatPercent(probabilities[label])}`;
    })
    .join("; ");
}

function currentState() {
  const models = chooser
    ? chooser.selected().map(({ name }) => name)
    : initialState.models;
  return { ...fields.content, models };
}

byId("input").addEventListener("submit", (event) => event.preventDefault());
byId("clear").addEventListener("click", () => {
  setText(["", ""]);
  fields.focus();
});
byId("example").addEventListener("click", () => {
  const examples = EXAMPLES[chooser?.selected()[0]?.kind ?? "text"];
  const current = examples.findIndex(([text]) => text === fields.content.text);
  setText(examples[(current + 1) % examples.length]);
});
byId("copy-link").addEventListener("click", async () => {
  byId("status").textContent = (await copyText(location.href))
    ? "Link copied."
    : "The link could not be copied. Copy it from the address bar.";
});
byId("download").addEventListener("click", () => {
  downloadRecords(results.flatMap(({ record }) => record ?? []));
});
addEventListener("hashchange", () => {
  const state = parseLink(location.hash);
  if (!state) return;
  fields.content = state;
  initialState = state;
  if (!chooser) return;
  selectModels(state.models);
  update();
});

start(parseLink(location.hash) ?? { text: "", pair: "", models: [] });
