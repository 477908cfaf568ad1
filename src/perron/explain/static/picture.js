/** The graph on the screen as an SVG or PNG file, in the colors it has there. */

import { drawing, element } from "./elements.js";

const SHARP = 2; // pixels of a PNG for each on the screen
const MARGIN = 16;

/**
 * @param {() => {canvas: HTMLElement, about: string}} content
 * @returns {HTMLElement}
 */
export function copyButtons(content) {
  const status = element("span", { class: "status", role: "status" });
  const button = (name, kind, blob) =>
    element("button", {
      type: "button",
      class: name,
      text: `Copy as ${kind}`,
      onclick: async () => {
        status.textContent = await handOver(kind, await blob(content()));
      },
    });
  return element(
    "div",
    { class: "control copy" },
    button("copy-svg", "SVG", async (shown) => svgBlob(svgOf(shown))),
    button("copy-png", "PNG", (shown) => pngBlob(svgOf(shown))),
    status,
  );
}

/** Copy where the browser allows it, else save as a file. */
async function handOver(kind, blob) {
  try {
    const item =
      kind === "SVG"
        ? { "text/plain": new Blob([await blob.text()], { type: "text/plain" }) }
        : { [blob.type]: blob };
    await navigator.clipboard.write([new ClipboardItem(item)]);
    return `${kind} copied.`;
  } catch {
    const address = URL.createObjectURL(blob);
    const name = `word-graph.${kind.toLowerCase()}`;
    element("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    return `Saved as ${name}.`;
  }
}

/** Draw once more, with every color written out: a file has no style sheet. */
function svgOf({ canvas, about }) {
  const width = canvas.clientWidth + 2 * MARGIN;
  const height = canvas.clientHeight + 2 * MARGIN + 16;
  const paper = getComputedStyle(document.body).backgroundColor;
  const ink = getComputedStyle(canvas).color;
  const inner = drawing("g", { transform: `translate(${MARGIN} ${MARGIN})` });
  for (const path of canvas.querySelectorAll(".arcs path")) inner.append(plain(path));
  for (const word of canvas.querySelectorAll(".word")) inner.append(...plainWord(word));
  const caption = { x: MARGIN, y: height - 10, fill: ink, "font-size": 12, text: about };
  return drawing(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "font-family": "system-ui, sans-serif",
    },
    drawing("title", { text: about }),
    drawing("rect", { width, height, fill: paper }),
    inner,
    drawing("text", caption),
  );
}

function plain(path) {
  const { fill, stroke, opacity } = getComputedStyle(path);
  const around = getComputedStyle(path.parentNode).opacity;
  return drawing("path", {
    d: path.getAttribute("d"),
    fill,
    stroke,
    "stroke-width": path.getAttribute("stroke-width"),
    opacity: opacity * around,
  });
}

function plainWord(word) {
  const style = getComputedStyle(word);
  const { offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height } = word;
  return [
    drawing("rect", { x, y, width, height, rx: 4, fill: style.backgroundColor }),
    drawing("text", {
      x: x + width / 2,
      y: y + height / 2,
      fill: style.color,
      "font-size": style.fontSize,
      "text-anchor": "middle",
      "dominant-baseline": "central",
      text: word.textContent,
    }),
  ];
}

function svgBlob(svg) {
  const source = new XMLSerializer().serializeToString(svg);
  return new Blob([source], { type: "image/svg+xml" });
}

async function pngBlob(svg) {
  const source = await svgBlob(svg).text();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();
  const canvas = element("canvas", {
    width: SHARP * svg.getAttribute("width"),
    height: SHARP * svg.getAttribute("height"),
  });
  const context = canvas.getContext("2d");
  context.scale(SHARP, SHARP);
  context.drawImage(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
