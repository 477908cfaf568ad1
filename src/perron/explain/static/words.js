/** The nodes of a graph in reading order, shaded, one of them the active one. */

import { element } from "./elements.js";
import { percent, shadeOf } from "./numbers.js";

/**
 * Fill a list box with words. The arrow keys, Home and End walk through them, a click
 * or Enter holds one, Escape lets it go; so one Tab is enough to pass by 500 words.
 *
 * @param {{labels: string[], names: string[], name: string, hold: number | null}} content
 * @param {{activate: (node: number | null) => void, held: (node: number | null) => void}} tell
 */
export function wordList({ labels, names, name, hold = null }, tell) {
  let held = hold;
  const words = labels.map((label, node) =>
    element("span", {
      class: "word",
      role: "option",
      text: label,
      tabindex: node === (hold ?? 0) ? 0 : -1,
      "aria-selected": String(node === hold),
      onpointerenter: (event) => event.pointerType !== "touch" && tell.activate(node),
      onpointerleave: () => tell.activate(held),
      onfocus: () => tell.activate(node),
      onblur: () => tell.activate(held),
      onclick: () => toggle(node),
      onkeydown: (event) => pressed(event, node),
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

  function toggle(node) {
    held = held === node ? null : node;
    words.forEach((word, other) => {
      word.setAttribute("aria-selected", String(other === held));
    });
    tell.held(held);
    tell.activate(held ?? node);
  }

  function pressed(event, node) {
    const next = { ArrowRight: node + 1, ArrowLeft: node - 1, Home: 0 };
    next.End = words.length - 1;
    if (event.key === "ArrowDown") next.ArrowDown = beside(words, node, 1);
    if (event.key === "ArrowUp") next.ArrowUp = beside(words, node, -1);
    if (event.key in next) focus(next[event.key]);
    else if (event.key === "Enter" || event.key === " ") toggle(node);
    else if (event.key === "Escape" && held !== null) toggle(held);
    else return;
    event.preventDefault();
  }

  function focus(node) {
    const to = words[Math.max(0, Math.min(words.length - 1, node))];
    for (const word of words) word.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  /** Shade the words by the weights of a view. */
  function shade(view) {
    words.forEach((word, node) => {
      word.style.setProperty("--shade", shadeOf(view, node).toFixed(3));
      const weight = view.weights ? `, ${percent(view.weights[node])}` : "";
      word.setAttribute("aria-label", `${names[node]}${weight}`);
    });
  }

  return { list, words, shade };
}

/** Return the word nearest in the line above (-1) or below (1). */
function beside(words, node, direction) {
  const here = words[node];
  let best = node;
  let distance = Infinity;
  for (let other = node; other >= 0 && other < words.length; other += direction) {
    const rows = direction * (words[other].offsetTop - here.offsetTop);
    if (rows <= 2) continue; // in the same line
    const aside = Math.abs(words[other].offsetLeft - here.offsetLeft);
    const away = rows * 1000 + aside;
    if (away >= distance) continue;
    distance = away;
    best = other;
  }
  return best;
}
