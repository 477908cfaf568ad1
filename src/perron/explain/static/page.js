/** Standalone page: one row per text, with one record per model. */

import { element } from "./elements.js";
import { showRecord } from "./record.js";

const rows = JSON.parse(document.getElementById("records").textContent);
const main = document.querySelector("main");

// A page may have a hundred texts. Each is drawn only when it is about to be visible.
const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) drawRecord(target);
    }
  },
  { rootMargin: "400px" },
);

function drawRecord(host) {
  observer.unobserve(host);
  showRecord(host, rows[host.dataset.row][host.dataset.column]);
}

// Draw everything before printing.
addEventListener("beforeprint", () => {
  document.querySelectorAll(".record:empty").forEach(drawRecord);
});

rows.forEach((records, row) => {
  const cards = records.map((record, column) => {
    const host = element("div", { class: "record" });
    Object.assign(host.dataset, { row, column });
    observer.observe(host);
    const { name, aggregator } = record.model;
    const title = element(
      "h2",
      { class: "model" },
      element("span", { text: name }),
      element("small", { text: ` ${aggregator}` }),
    );
    return element("article", { class: "card" }, title, host);
  });
  main.append(
    element(
      "section",
      { class: "row", "aria-label": `Text ${row + 1}` },
      ...(rows.length > 1 ? [element("p", { class: "number", text: row + 1 })] : []),
      element("div", { class: "cards" }, ...cards),
    ),
  );
});
