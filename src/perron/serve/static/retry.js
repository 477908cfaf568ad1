/** Retries while the server is busy, and debouncing of input. */

import { RequestError } from "./api.js";

const MAX_RETRIES = 3;
const MAX_WAIT = 30; // seconds; a longer wait is reported as an error

/**
 * Retry a request a few times while the server is busy.
 * @template T
 * @param {() => Promise<T>} request
 * @param {AbortSignal} signal
 * @param {(message: string) => void} onStatus
 * @returns {Promise<T>}
 */
export async function withRetries(request, signal, onStatus) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await request();
    } catch (error) {
      const isBusy = error instanceof RequestError && [429, 503].includes(error.status);
      const wait = Math.max(error.retryAfter ?? 2, 0.5);
      if (!isBusy || attempt > MAX_RETRIES || wait > MAX_WAIT) throw error;
      const when = `${Math.ceil(wait)} s (${attempt} of ${MAX_RETRIES})`;
      onStatus(`The server is busy. Retrying in ${when}.`);
      await sleep(wait, signal);
    }
  }
}

function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/**
 * Return a debounced function, which runs after a pause without further calls.
 * @param {number} milliseconds
 * @param {() => void} run
 */
export function debounce(milliseconds, run) {
  let timer = 0;
  return {
    schedule() {
      clearTimeout(timer);
      timer = setTimeout(run, milliseconds);
    },
    cancel() {
      clearTimeout(timer);
    },
  };
}
