/** What the page says when there is no record to show: why, and what to do. */

import { keepKey } from "./api.js";
import { element } from "./graph/elements.js";

/**
 * Say where to begin, with examples to click.
 * @param {string} invitation
 * @param {string[][]} examples
 * @param {(example: string[]) => void} pick
 */
export function beginning(invitation, examples, pick) {
  const items = examples.map((example) =>
    element("li", {}, button(example.join("  →  "), () => pick(example))),
  );
  return element(
    "div",
    { class: "notice beginning" },
    element("p", { text: invitation }),
    element("ul", {}, ...items),
  );
}

/**
 * Say what went wrong, in the server's words, and what helps.
 * @param {import("./api.js").Failure} failure
 * @param {() => void} retry
 */
export function failed({ status, message, wait }, retry) {
  const tooLong = status === 413 || status === 422;
  const children = [
    element("h2", { text: heading(status) }),
    element("p", { text: sentence(message) }),
    element("p", { text: advice(status, wait) }),
  ];
  if (!tooLong) children.push(button("Try again", retry));
  return element("div", { class: "notice failed", role: "alert" }, ...children);
}

/** Write what the server said as a sentence. */
export function sentence(message) {
  const whole = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function heading(status) {
  if (status === 0) return "No connection";
  if (status === 413 || status === 422) return "The server did not take this text";
  if (status === 429 || status === 503) return "The server is busy";
  return "Something went wrong";
}

function advice(status, wait) {
  if (status === 0) {
    return "It may have been stopped, or the network is down. What you typed is kept.";
  }
  if (status === 413 || status === 422) {
    return "Change it, and the answer comes by itself.";
  }
  if (wait) return `It asks to be left alone for ${Math.ceil(wait)} s.`;
  return "What you typed is kept.";
}

/**
 * Ask for the key of the server.
 * @param {boolean} refused whether one was sent and not accepted
 * @param {() => void} retry
 */
export function keyNeeded(refused, retry) {
  const field = element("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    required: true,
    // A header carries no other characters.
    pattern: "[!-~]+",
    title: "Letters, digits and signs without blanks",
    "aria-describedby": "key-hint",
  });
  const form = element(
    "form",
    { class: "notice key" },
    element("h2", { text: "This server wants a key" }),
    element("p", {
      id: "key-hint",
      role: "alert",
      text: refused
        ? "It did not accept the one that was given."
        : "Whoever runs it can give you one. It is kept until this tab is closed.",
    }),
    element("label", { for: "key", text: "API key" }),
    element("div", { class: "row" }, field, element("button", { text: "Use key" })),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey(field.value);
    retry();
  });
  return form;
}

/** @param {string} text */
export function plain(text) {
  return element("p", { class: "notice", text });
}

function button(text, onclick) {
  return element("button", { type: "button", text, onclick, dir: "auto" });
}
