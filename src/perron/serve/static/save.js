/** Taking something along: the link, or the records as JSON. */

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether it is on the clipboard now
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not allowed, or no https
  }
}

/**
 * Download one record as it came, or several as a list.
 * @param {object[]} records
 */
export function download(records) {
  const [first] = records;
  const content = records.length > 1 ? records : first;
  const name = records.length > 1 ? "records" : first.model.name;
  const file = new Blob([JSON.stringify(content)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = `perron-${name.replace(/[^\w.-]+/g, "-")}.json`;
  link.click();
  // Some browsers begin to read only later.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
