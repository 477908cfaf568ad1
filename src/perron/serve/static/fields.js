/** Input fields for a text, a pair of texts, or a document. */

const FORMS = {
  text: { labels: ["Text"], rows: 2, placeholders: ["Type or paste a sentence"] },
  pair: {
    labels: ["Premise", "Hypothesis"],
    rows: 2,
    placeholders: ["Type or paste a statement", "A statement that may follow from it"],
  },
  document: {
    labels: ["Document"],
    rows: 7,
    placeholders: ["Type or paste several sentences"],
  },
};

/**
 * @param {HTMLTextAreaElement} text
 * @param {HTMLTextAreaElement} pair
 * @param {() => void} onInput
 */
export function textFields(text, pair, onInput) {
  const fields = [text, pair];
  let kind = "text";
  for (const field of fields) field.addEventListener("input", onInput);

  return {
    /** Show the fields for a kind of model. */
    setKind(newKind) {
      kind = newKind;
      const { labels, rows, placeholders } = FORMS[kind];
      fields.forEach((field, index) => {
        field.parentElement.hidden = index >= labels.length;
        field.labels[0].textContent = labels[index] ?? "";
        field.placeholder = placeholders[index] ?? "";
        field.rows = rows;
      });
    },
    /** The input. `pair` is empty except for pairs. */
    get content() {
      return { text: text.value, pair: kind === "pair" ? pair.value : "" };
    },
    set content({ text: first, pair: second }) {
      // Setting the same value would move the cursor.
      if (text.value !== first) text.value = first;
      if (pair.value !== second) pair.value = second;
    },
    /** Label of the first empty field, or null. */
    get firstEmpty() {
      const required = kind === "pair" ? fields : [text];
      return required.find((field) => !field.value.trim())?.labels[0].textContent ?? null;
    },
    focus() {
      text.focus();
    },
  };
}
