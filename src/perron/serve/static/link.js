/**
 * Permalinks. The text and the models are in the fragment of the URL, after the #, which
 * browsers do not send to servers.
 *
 * @typedef {{text: string, pair: string, models: string[]}} State
 */

/**
 * Parse the fragment of a URL. Return null if it is not a permalink.
 * @param {string} fragment
 * @returns {State | null}
 */
export function parseLink(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!["text", "pair", "model"].some((name) => fields.has(name))) return null;
  return {
    text: fields.get("text") ?? "",
    pair: fields.get("pair") ?? "",
    models: fields.getAll("model"),
  };
}

/**
 * Update the URL, without adding an entry to the browser history.
 * @param {State} state
 */
export function updateLink({ text, pair, models }) {
  const fields = new URLSearchParams();
  for (const model of models) fields.append("model", model);
  if (text) fields.set("text", text);
  if (pair) fields.set("pair", pair);
  try {
    history.replaceState(null, "", `#${fields}`);
  } catch {
    // Browsers reject very long URLs and frequent updates. The page works without them.
  }
}
