/**
 * Permalinks: what is on the page, written behind the # of its address, where no server
 * and no log sees it.
 *
 * @typedef {{text: string, pair: string, models: string[]}} Shown
 */

/**
 * Read the fragment of an address; null if it is none of ours.
 * @param {string} fragment
 * @returns {Shown | null}
 */
export function readLink(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!["text", "pair", "model"].some((name) => fields.has(name))) return null;
  return {
    text: fields.get("text") ?? "",
    pair: fields.get("pair") ?? "",
    models: fields.getAll("model"),
  };
}

/**
 * Put what is shown into the address, without a step in the browser's history.
 * @param {Shown} shown
 */
export function writeLink({ text, pair, models }) {
  const fields = new URLSearchParams();
  for (const model of models) fields.append("model", model);
  if (text) fields.set("text", text);
  if (pair) fields.set("pair", pair);
  try {
    history.replaceState(null, "", `#${fields}`);
  } catch {
    // Browsers refuse very long addresses, and many changes in a short time. The page
    // works without.
  }
}
