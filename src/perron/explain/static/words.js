/** List box with the nodes of a graph in reading order, shaded by weight. */

import { element } from "./elements.js";
import { colorStrength, formatPercent } from "./numbers.js";

/**
 * Create a list box of words. The arrow keys, Home and End move between words. A click or
 * Enter pins a word, and Escape unpins it. The list is a single tab stop, so one Tab skips
 * hundreds of words.
 *
 * @param {{labels: string[], names: string[], name: string, pinned: number | null}} content
 * @param {{onActivate: (node: number | null) => void,
 *   onPin: (node: number | null) => void}} callbacks
 */
export function wordList({ labels, names, name, pinned = null }, { onActivate, onPin }) {
  const words = labels.map((label, node) =>
    element("span", {
      class: "word",
      role: "option",
      text: label,
      tabindex: node === (pinned ?? 0) ? 0 : -1,
      "aria-selected": String(node === pinned),
      onpointerenter: (event) => event.pointerType !== "touch" && onActivate(node),
      onpointerleave: () => onActivate(pinned),
      onfocus: () => onActivate(node),
      onblur: () => onActivate(pinned),
      onclick: () => togglePin(node),
      onkeydown: (event) => handleKey(event, node),
    }),
  );
  const list = element(
    "div",
    {
      class: "words",
      role: "listbox",
      dir: "auto",
      "aria-label": name,
      "aria-orientation": "horizontal",
    },
    ...words,
  );

  function togglePin(node) {
    pinned = pinned === node ? null : node;
    words.forEach((word, other) => {
      word.setAttribute("aria-selected", String(other === pinned));
    });
    onPin(pinned);
    onActivate(pinned ?? node);
  }

  function handleKey(event, node) {
    const targets = { ArrowRight: node + 1, ArrowLeft: node - 1, Home: 0 };
    targets.End = words.length - 1;
    if (event.key === "ArrowDown") targets.ArrowDown = closestInNextLine(words, node, 1);
    if (event.key === "ArrowUp") targets.ArrowUp = closestInNextLine(words, node, -1);
    if (event.key in targets) focusWord(targets[event.key]);
    else if (event.key === "Enter" || event.key === " ") togglePin(node);
    else if (event.key === "Escape" && pinned !== null) togglePin(pinned);
    else return;
    event.preventDefault();
  }

  function focusWord(node) {
    const target = words[Math.max(0, Math.min(words.length - 1, node))];
    for (const word of words) word.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  /** Shade the words by the weights of a view. */
  function shade(view) {
    words.forEach((word, node) => {
      word.style.setProperty("--shade", colorStrength(view, node).toFixed(3));
      const weight = view.weights ? `, ${formatPercent(view.weights[node])}` : "";
      word.setAttribute("aria-label", `${names[node]}${weight}`);
    });
  }

  return { list, words, shade };
}

/** Return the closest word in the line above (-1) or below (1). */
function closestInNextLine(words, node, direction) {
  const current = words[node];
  let closest = node;
  let minDistance = Infinity;
  for (let other = node; other >= 0 && other < words.length; other += direction) {
    const vertical = direction * (words[other].offsetTop - current.offsetTop);
    if (vertical <= 2) continue; // the same line
    const horizontal = Math.abs(words[other].offsetLeft - current.offsetLeft);
    const distance = vertical * 1000 + horizontal;
    if (distance >= minDistance) continue;
    minDistance = distance;
    closest = other;
  }
  return closest;
}
