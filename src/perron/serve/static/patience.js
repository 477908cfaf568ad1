/** Waiting: for the last key, and for a server that is busy. */

import { Failure } from "./api.js";

const TRIES = 3; // after the first
const LONGEST = 30; // seconds; nobody sits and waits for longer

/**
 * Ask again, a few times, while the server says that it is busy.
 * @template T
 * @param {() => Promise<T>} ask
 * @param {AbortSignal} signal
 * @param {(sentence: string) => void} tell
 * @returns {Promise<T>}
 */
export async function patiently(ask, signal, tell) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await ask();
    } catch (error) {
      const busy = error instanceof Failure && [429, 503].includes(error.status);
      const wait = Math.max(error.wait ?? 2, 0.5);
      if (!busy || attempt > TRIES || wait > LONGEST) throw error;
      const when = `${Math.ceil(wait)} s (${attempt} of ${TRIES})`;
      tell(`The server is busy; asking again in ${when}.`);
      await pause(wait, signal);
    }
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/**
 * Run a function soon, but only once nobody has asked for it for a while.
 * @param {number} milliseconds
 * @param {() => void} run
 */
export function afterRest(milliseconds, run) {
  let timer = 0;
  return {
    soon() {
      clearTimeout(timer);
      timer = setTimeout(run, milliseconds);
    },
    cancel() {
      clearTimeout(timer);
    },
  };
}
