/** Slider for the number of edges to show, strongest first. */

import { element } from "./elements.js";
import { MAX_EDGES } from "./numbers.js";

const DEFAULT_PER_NODE = 2; // edges per node, on average
const MAX_STEPS = 200; // of the slider

/**
 * @param {{perNode?: number}} settings choice for the previous graph, which is updated
 * @param {(threshold: number) => void} onChange called with the minimum strength to show
 * @returns {{control: HTMLElement,
 *   setStrengths: (sorted: Float64Array, nodes: number) => void}}
 */
export function thresholdSlider(settings, onChange) {
  const slider = element("input", { type: "range", class: "threshold", min: 0 });
  const output = element("output", {});
  const control = element(
    "label",
    { class: "control" },
    element("span", { text: "Edges shown" }),
    slider,
    output,
  );
  let strengths = new Float64Array();
  let nodes = 0;
  slider.addEventListener("input", () => {
    settings.perNode = update() / nodes;
  });

  /** Set the strengths to choose from, in descending order. */
  function setStrengths(sorted, count) {
    strengths = sorted;
    nodes = count;
    const max = Math.min(strengths.length, MAX_EDGES);
    slider.max = Math.min(max, MAX_STEPS);
    const preferred = Math.round((settings.perNode ?? DEFAULT_PER_NODE) * nodes);
    slider.value = stepAt(Math.min(max, preferred), max);
    update();
  }

  function update() {
    const max = Math.min(strengths.length, MAX_EDGES);
    const count = countAt(Number(slider.value), max);
    const threshold = count ? strengths[count - 1] : Infinity;
    const text = count
      ? `${count} of ${strengths.length}, at least ${threshold.toPrecision(2)}`
      : "none";
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    onChange(threshold);
    return count;
  }

  return { control, setStrengths };
}

/**
 * Return the number of edges at a step of the slider. Few edges have one step each. For
 * many edges, the steps grow exponentially, because the strongest edges matter most.
 */
function countAt(step, max) {
  if (max <= MAX_STEPS) return step;
  return Math.round(Math.expm1((step / MAX_STEPS) * Math.log1p(max)));
}

function stepAt(count, max) {
  if (max <= MAX_STEPS) return count;
  return Math.round((MAX_STEPS * Math.log1p(count)) / Math.log1p(max));
}
