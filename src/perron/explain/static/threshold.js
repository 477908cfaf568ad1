/** The slider that says how many of the strongest edges are shown. */

import { element } from "./elements.js";
import { MOST_EDGES } from "./numbers.js";

const AT_FIRST = 2; // edges for each node, on average
const STOPS = 200; // of the slider, at most

/**
 * @param {{perNode?: number}} kept what was chosen before is read from it, and left in it
 * @param {(least: number) => void} changed is told the weakest strength to show
 * @returns {{row: HTMLElement, offer: (strengths: Float64Array, nodes: number) => void}}
 */
export function thresholdSlider(kept, changed) {
  const slider = element("input", { type: "range", class: "threshold", min: 0 });
  const output = element("output", {});
  const row = element(
    "label",
    { class: "control" },
    element("span", { text: "Edges shown" }),
    slider,
    output,
  );
  let all = new Float64Array();
  let nodes = 0;
  slider.addEventListener("input", () => {
    kept.perNode = tell() / nodes;
  });

  /** Show the strongest few of these, the strongest first. */
  function offer(strengths, count) {
    all = strengths;
    nodes = count;
    const most = Math.min(all.length, MOST_EDGES);
    slider.max = Math.min(most, STOPS);
    const wanted = Math.round((kept.perNode ?? AT_FIRST) * nodes);
    slider.value = stopOf(Math.min(most, wanted), most);
    tell();
  }

  function tell() {
    const most = Math.min(all.length, MOST_EDGES);
    const count = countAt(Number(slider.value), most);
    const least = count ? all[count - 1] : Infinity;
    const text = count ? `${count} of ${all.length}, from ${least.toPrecision(2)} up` : "none";
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    changed(least);
    return count;
  }

  return { row, offer };
}

/** Few edges: a stop for each. Many: stops grow, as the first ones matter most. */
function countAt(stop, most) {
  if (most <= STOPS) return stop;
  return Math.round(Math.expm1((stop / STOPS) * Math.log1p(most)));
}

function stopOf(count, most) {
  if (most <= STOPS) return count;
  return Math.round((STOPS * Math.log1p(count)) / Math.log1p(most));
}
