/** Client of the HTTP API. */

const STORAGE_KEY = "perron-key";

/**
 * @typedef {{name: string, kind: "text" | "pair" | "document", encoder: string,
 *   aggregator: string, labels: string[], max_words: number,
 *   max_sentences: number}} Model
 */

/** A failed request. Status 0 means that the server could not be reached. */
export class RequestError extends Error {
  /**
   * @param {number} status
   * @param {string} message message of the server, if any
   * @param {number | null} retryAfter seconds after which to retry
   */
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Store the API key until the tab is closed. */
export function storeKey(key) {
  sessionStorage.setItem(STORAGE_KEY, key);
}

/** Return whether an API key is stored. */
export function hasKey() {
  return sessionStorage.getItem(STORAGE_KEY) !== null;
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<{models: Model[], limits: object, version: string}>}
 */
export function listModels(signal) {
  return request("v1/models", { signal });
}

/**
 * Return the record of a text or a pair of texts.
 * @param {string} model
 * @param {string} text
 * @param {string | null} pair
 * @param {AbortSignal} signal
 */
export async function explain(model, text, pair, signal) {
  const body = { model, texts: [text], pairs: pair === null ? null : [pair] };
  const { records } = await request("v1/explain", {
    method: "POST",
    body: JSON.stringify(body),
    signal,
  });
  return records[0];
}

async function request(path, options) {
  const headers = { Accept: "application/json" };
  if (options.body) headers["Content-Type"] = "application/json";
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(STORAGE_KEY)}`;
  let response;
  let text;
  try {
    response = await fetch(path, { ...options, headers });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The server is not responding.");
  }
  const content = parseJson(text);
  if (response.ok && content) return content;
  const message =
    content?.error?.message ?? `The server responded with status ${response.status}.`;
  throw new RequestError(response.status, message, retryAfter(response));
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // such as an HTML error of a proxy
  }
}

function retryAfter(response) {
  const seconds = Number.parseFloat(response.headers.get("Retry-After"));
  return Number.isFinite(seconds) ? Math.max(0, seconds) : null;
}
