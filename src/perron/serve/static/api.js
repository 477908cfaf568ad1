/** Questions to the server, and what may come of them. */

const KEY = "perron-key";

/**
 * @typedef {{name: string, kind: "text" | "pair" | "document", encoder: string,
 *   aggregator: string, labels: string[], max_words: number,
 *   max_sentences: number}} Model
 */

/** A question without an answer. Status 0: the server could not be reached. */
export class Failure extends Error {
  /**
   * @param {number} status
   * @param {string} message in the server's words, where it had some
   * @param {number | null} wait seconds after which the server may be asked again
   */
  constructor(status, message, wait = null) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

/** Keep a key until the tab is closed. */
export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Whether a key is sent along. */
export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<{models: Model[], limits: object, version: string}>}
 */
export function listModels(signal) {
  return ask("v1/models", { signal });
}

/**
 * Return the record of one text, or of one pair.
 * @param {string} model
 * @param {string} text
 * @param {string | null} pair
 * @param {AbortSignal} signal
 */
export async function explain(model, text, pair, signal) {
  const body = { model, texts: [text], pairs: pair === null ? null : [pair] };
  const answer = await ask("v1/explain", {
    method: "POST",
    body: JSON.stringify(body),
    signal,
  });
  return answer.records[0];
}

async function ask(path, options) {
  const headers = { Accept: "application/json" };
  if (options.body) headers["Content-Type"] = "application/json";
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  let response;
  let answer;
  try {
    response = await fetch(path, { ...options, headers });
    answer = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The server does not answer.");
  }
  const content = parsed(answer);
  if (response.ok && content) return content;
  const told = content?.error?.message;
  const message = told ?? `The server answered with status ${response.status}.`;
  throw new Failure(response.status, message, seconds(response));
}

function parsed(answer) {
  try {
    return JSON.parse(answer);
  } catch {
    return null; // a proxy on the way may answer in HTML
  }
}

function seconds(response) {
  const wait = Number.parseFloat(response.headers.get("Retry-After"));
  return Number.isFinite(wait) ? Math.max(0, wait) : null;
}
