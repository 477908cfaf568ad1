/** Notices that are shown in place of records: empty states and errors. */

import { storeKey } from "./api.js";
import { element } from "./graph/elements.js";

/**
 * Invite to enter a text, with examples to click.
 * @param {string} invitation
 * @param {string[][]} examples
 * @param {(example: string[]) => void} onPick
 */
export function emptyState(invitation, examples, onPick) {
  const items = examples.map((example) =>
    element("li", {}, button(example.join("  →  "), () => onPick(example))),
  );
  return element(
    "div",
    { class: "notice empty-state" },
    element("p", { text: invitation }),
    element("ul", {}, ...items),
  );
}

/**
 * Show an error and how to continue.
 * @param {import("./api.js").RequestError} error
 * @param {() => void} onRetry
 */
export function errorNotice({ status, message, retryAfter }, onRetry) {
  const children = [
    element("h2", { text: heading(status) }),
    element("p", { text: sentence(message) }),
    element("p", { text: advice(status, retryAfter) }),
  ];
  if (!isRejected(status)) children.push(button("Try again", onRetry));
  return element("div", { class: "notice error", role: "alert" }, ...children);
}

/** Format an error message as a sentence. */
export function sentence(message) {
  const capitalized = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(capitalized) ? capitalized : `${capitalized}.`;
}

function isRejected(status) {
  return status === 413 || status === 422;
}

function heading(status) {
  if (status === 0) return "No connection";
  if (isRejected(status)) return "The server rejected this text";
  if (status === 429 || status === 503) return "The server is busy";
  return "Something went wrong";
}

function advice(status, retryAfter) {
  if (status === 0) {
    return "It may have stopped, or the network may be down. Your text is still here.";
  }
  if (isRejected(status)) return "Edit the text to try again.";
  if (retryAfter) return `Wait ${Math.ceil(retryAfter)} s before you try again.`;
  return "Your text is still here.";
}

/**
 * Ask for the API key of the server.
 * @param {boolean} wasRejected whether the server rejected the stored key
 * @param {() => void} onSubmit
 */
export function keyForm(wasRejected, onSubmit) {
  const field = element("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    required: true,
    // Other characters are not allowed in a header.
    pattern: "[!-~]+",
    title: "Letters, digits and symbols, without spaces",
    "aria-describedby": "key-hint",
  });
  const form = element(
    "form",
    { class: "notice key" },
    element("h2", { text: "This server requires an API key" }),
    element("p", {
      id: "key-hint",
      role: "alert",
      text: wasRejected
        ? "The server did not accept this key."
        : "Ask the operator of the server for a key. It is stored until you close this tab.",
    }),
    element("label", { for: "key", text: "API key" }),
    element("div", { class: "row" }, field, element("button", { text: "Use key" })),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    storeKey(field.value);
    onSubmit();
  });
  return form;
}

/** @param {string} text */
export function textNotice(text) {
  return element("p", { class: "notice", text });
}

function button(text, onclick) {
  return element("button", { type: "button", text, onclick, dir: "auto" });
}
