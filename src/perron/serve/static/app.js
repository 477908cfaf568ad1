/** The viewer: what is typed goes to the chosen models, and their records come back. */

import { Failure, explain, hasKey, listModels } from "./api.js";
import { showCards } from "./cards.js";
import { modelChooser } from "./chooser.js";
import { EXAMPLES } from "./examples.js";
import { textFields } from "./fields.js";
import { percent } from "./graph/numbers.js";
import { readLink, writeLink } from "./link.js";
import { beginning, failed, keyNeeded, plain } from "./notices.js";
import { afterRest, patiently } from "./patience.js";
import { copy, download } from "./save.js";

const at = (id) => document.getElementById(id);
const fields = textFields(at("text"), at("pair"), typed);
const typing = afterRest(250, read);
const speaking = afterRest(700, speak); // not at every pause in typing

let chooser = null; // until the models are known
let wanted = { models: [] };
let asking = new AbortController();
let answers = [];

/** Ask which models there are, and show what the link or the page before said. */
async function begin(shown) {
  wanted = shown;
  fields.content = shown;
  const listed = await answered((signal, tell) =>
    patiently(() => listModels(signal), signal, tell),
  );
  if (!listed) return;
  at("version").textContent = `Perron ${listed.version}.`;
  chooser = modelChooser(at("models"), listed.models, (reason) => {
    at("told").textContent = reason;
    read();
  });
  choose(wanted.models); // a newer link may have come
  await read();
}

function choose(names) {
  const missing = chooser.choose(names).join(", ");
  at("told").textContent = missing && `This server has no model ${missing}.`;
}

function typed() {
  if (!chooser) return; // it is read once the models are known
  asking.abort(); // whatever comes now is no answer to what stands there
  speaking.cancel();
  typing.soon();
}

/** Ask the chosen models about the text, and show what they say. */
async function read() {
  if (!chooser) return;
  typing.cancel();
  asking.abort();
  const models = chooser.chosen();
  const kind = models[0]?.kind;
  if (kind) fields.setKind(kind);
  const { text, pair } = fields.content;
  writeLink({ text, pair, models: models.map(({ name }) => name) });
  at("clear").disabled = !text && !pair;
  if (!kind) return rest(plain("Choose a model, or several to compare them."));
  if (fields.missing) return rest(invitation(kind, text || pair));
  const found = await answered((signal, tell) => {
    const second = kind === "pair" ? pair : null;
    return Promise.all(
      models.map((model) =>
        patiently(() => explain(model.name, text, second, signal), signal, tell).then(
          (record) => ({ model, record }),
          (failure) => ({ model, failure: onlyFailure(failure) }),
        ),
      ),
    );
  });
  if (found) show(found);
}

/**
 * Return what comes of a question: null if a newer one was asked meanwhile, or if it
 * failed, which is told.
 */
async function answered(question) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const tell = (sentence) => {
    at("cards").setAttribute("aria-busy", "true");
    at("progress").textContent = sentence;
  };
  const slow = setTimeout(tell, 300, "Reading …"); // quick answers need no announcement
  try {
    const found = await question(signal, tell);
    return signal.aborted ? null : found;
  } catch (error) {
    if (error.name !== "AbortError") problem(onlyFailure(error));
    return null;
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) {
      at("cards").setAttribute("aria-busy", "false");
      at("progress").textContent = "";
    }
  }
}

function onlyFailure(error) {
  if (error instanceof Failure) return error;
  throw error;
}

function show(found) {
  const failures = found.flatMap(({ failure }) => failure ?? []);
  const first = failures[0];
  const shared =
    failures.length === found.length &&
    failures.every(({ message }) => message === first.message);
  const locked = failures.find(({ status }) => status === 401);
  if (locked || shared) return problem(locked ?? first);
  answers = found;
  at("download").disabled = failures.length === found.length;
  notify();
  showCards(at("cards"), found);
  speaking.soon();
}

/** Show a notice instead of records. Return whether it is a new one. */
function rest(notice) {
  at("cards").setAttribute("aria-busy", "false");
  at("progress").textContent = "";
  at("cards").replaceChildren();
  answers = [];
  at("download").disabled = true;
  speaking.cancel();
  // The same words again would be read aloud again, and would take the focus.
  if (at("notice").textContent === notice.textContent) return false;
  notify(notice);
  return true;
}

function notify(...notices) {
  const focused = at("notice").contains(document.activeElement);
  at("notice").replaceChildren(...notices);
  if (focused) at("results").focus(); // the button is gone that had it
}

function problem(failure) {
  const again = () => begin(shown());
  if (failure.status !== 401) return rest(failed(failure, again));
  if (rest(keyNeeded(hasKey(), again))) at("key").focus();
}

function invitation(kind, begun) {
  const sentence = begun
    ? `Now the ${fields.missing.toLowerCase()}. Or begin with one of these:`
    : "Type or paste above what the model shall read, or begin with one of these:";
  return beginning(sentence, EXAMPLES[kind], (example) => {
    pick(example);
    fields.focus();
  });
}

function pick([text, pair = ""]) {
  fields.content = { text, pair };
  read();
}

function speak() {
  at("spoken").textContent = answers
    .filter(({ record }) => record)
    .map(({ model, record }) => {
      return `${model.name}: ${record.label}, ${percent(record.probabilities[record.label])}`;
    })
    .join("; ");
}

function shown() {
  const models = chooser ? chooser.chosen().map(({ name }) => name) : wanted.models;
  return { ...fields.content, models };
}

at("ask").addEventListener("submit", (event) => event.preventDefault());
at("clear").addEventListener("click", () => {
  pick(["", ""]);
  fields.focus();
});
at("example").addEventListener("click", () => {
  const examples = EXAMPLES[chooser?.chosen()[0]?.kind ?? "text"];
  const now = examples.findIndex(([text]) => text === fields.content.text);
  pick(examples[(now + 1) % examples.length]);
});
at("copy-link").addEventListener("click", async () => {
  at("told").textContent = (await copy(location.href))
    ? "The link is on the clipboard."
    : "The link stands in the address bar; copy it from there.";
});
at("download").addEventListener("click", () => {
  download(answers.flatMap(({ record }) => record ?? []));
});
addEventListener("hashchange", () => {
  const link = readLink(location.hash);
  if (!link) return;
  fields.content = link;
  wanted = link;
  if (!chooser) return;
  choose(link.models);
  read();
});

begin(readLink(location.hash) ?? { text: "", pair: "", models: [] });
