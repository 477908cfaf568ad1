/** Export of the graph as shown, as SVG or PNG. */

import { element, svgElement } from "./elements.js";

const PIXEL_RATIO = 2; // pixels of a PNG per pixel on the screen
const MARGIN = 16;

/**
 * @param {() => {canvas: HTMLElement, caption: string}} getContent
 * @returns {HTMLElement}
 */
export function copyButtons(getContent) {
  const status = element("span", { class: "status", role: "status" });
  const button = (name, format, toBlob) =>
    element("button", {
      type: "button",
      class: name,
      text: `Copy as ${format}`,
      onclick: async () => {
        status.textContent = await copyOrSave(format, await toBlob(getContent()));
      },
    });
  return element(
    "div",
    { class: "control copy" },
    button("copy-svg", "SVG", async (content) => svgBlob(createSvg(content))),
    button("copy-png", "PNG", (content) => pngBlob(createSvg(content))),
    status,
  );
}

/** Copy to the clipboard or, if the browser does not allow it, save a file. */
async function copyOrSave(format, blob) {
  try {
    const item =
      format === "SVG"
        ? { "text/plain": new Blob([await blob.text()], { type: "text/plain" }) }
        : { [blob.type]: blob };
    await navigator.clipboard.write([new ClipboardItem(item)]);
    return `${format} copied.`;
  } catch {
    const url = URL.createObjectURL(blob);
    const name = `word-graph.${format.toLowerCase()}`;
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    return `Saved as ${name}.`;
  }
}

/** Draw the graph with all styles inlined, because the file has no style sheet. */
function createSvg({ canvas, caption }) {
  const width = canvas.clientWidth + 2 * MARGIN;
  const height = canvas.clientHeight + 2 * MARGIN + 16;
  const background = getComputedStyle(document.body).backgroundColor;
  const color = getComputedStyle(canvas).color;
  const graph = svgElement("g", { transform: `translate(${MARGIN} ${MARGIN})` });
  for (const path of canvas.querySelectorAll(".arcs path")) graph.append(copyPath(path));
  for (const word of canvas.querySelectorAll(".word")) graph.append(...copyWord(word));
  return svgElement(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "font-family": "system-ui, sans-serif",
    },
    svgElement("title", { text: caption }),
    svgElement("rect", { width, height, fill: background }),
    graph,
    svgElement("text", {
      x: MARGIN,
      y: height - 10,
      fill: color,
      "font-size": 12,
      text: caption,
    }),
  );
}

function copyPath(path) {
  const { fill, stroke, opacity } = getComputedStyle(path);
  const groupOpacity = getComputedStyle(path.parentNode).opacity;
  return svgElement("path", {
    d: path.getAttribute("d"),
    fill,
    stroke,
    "stroke-width": path.getAttribute("stroke-width"),
    opacity: opacity * groupOpacity,
  });
}

function copyWord(word) {
  const style = getComputedStyle(word);
  const { offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height } = word;
  return [
    svgElement("rect", { x, y, width, height, rx: 4, fill: style.backgroundColor }),
    svgElement("text", {
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
    width: PIXEL_RATIO * svg.getAttribute("width"),
    height: PIXEL_RATIO * svg.getAttribute("height"),
  });
  const context = canvas.getContext("2d");
  context.scale(PIXEL_RATIO, PIXEL_RATIO);
  context.drawImage(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
