/** The fields for a text, for two texts, or for a document. */

const FORMS = {
  text: { labels: ["Text"], rows: 2, hints: ["Type or paste a sentence"] },
  pair: {
    labels: ["Premise", "Hypothesis"],
    rows: 2,
    hints: ["What is the case", "What may follow from it"],
  },
  document: {
    labels: ["Document"],
    rows: 7,
    hints: ["Type or paste a text of several sentences"],
  },
};

/**
 * @param {HTMLTextAreaElement} text
 * @param {HTMLTextAreaElement} pair
 * @param {() => void} typed
 */
export function textFields(text, pair, typed) {
  const fields = [text, pair];
  let kind = "text";
  for (const field of fields) field.addEventListener("input", typed);

  return {
    /** Show the fields that models of a kind read. */
    setKind(now) {
      kind = now;
      const { labels, rows, hints } = FORMS[kind];
      fields.forEach((field, place) => {
        field.parentElement.hidden = place >= labels.length;
        field.labels[0].textContent = labels[place] ?? "";
        field.placeholder = hints[place] ?? "";
        field.rows = rows;
      });
    },
    /** What was typed; `pair` is empty for other kinds. */
    get content() {
      return { text: text.value, pair: kind === "pair" ? pair.value : "" };
    },
    set content({ text: first, pair: second }) {
      // Writing the same again would move the cursor.
      if (text.value !== first) text.value = first;
      if (pair.value !== second) pair.value = second;
    },
    /** The first field that still waits for words, or null. */
    get missing() {
      const needed = kind === "pair" ? fields : [text];
      return needed.find((field) => !field.value.trim())?.labels[0].textContent ?? null;
    },
    focus() {
      text.focus();
    },
  };
}
