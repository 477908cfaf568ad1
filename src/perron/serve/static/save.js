/** Copying the link, and downloading records. */

/**
 * Copy a text to the clipboard.
 * @param {string} text
 * @returns {Promise<boolean>} whether it was copied
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not permitted, or the page was not loaded over HTTPS
  }
}

/**
 * Download records as JSON: a single record as an object, several as a list.
 * @param {object[]} records
 */
export function downloadRecords(records) {
  const [first] = records;
  const content = records.length > 1 ? records : first;
  const name = records.length > 1 ? "records" : first.model.name;
  const blob = new Blob([JSON.stringify(content)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `perron-${name.replace(/[^\w.-]+/g, "-")}.json`;
  link.click();
  // Some browsers start the download only later.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
