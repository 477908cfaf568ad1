/** A page of records in one file: a row for each text, in it a record for each model. */

import { element } from "./elements.js";
import { showRecord } from "./record.js";

const rows = JSON.parse(document.getElementById("records").textContent);
const main = document.querySelector("main");

// A page may have a hundred texts: each is drawn when it is about to be seen.
const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) show(target);
    }
  },
  { rootMargin: "400px" },
);

function show(host) {
  seen.unobserve(host);
  showRecord(host, rows[host.dataset.row][host.dataset.column]);
}

// On paper all are seen.
addEventListener("beforeprint", () => {
  document.querySelectorAll(".record:empty").forEach(show);
});

rows.forEach((records, row) => {
  const cards = records.map((record, column) => {
    const host = element("div", { class: "record" });
    Object.assign(host.dataset, { row, column });
    seen.observe(host);
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
