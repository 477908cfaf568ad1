/**
 * SVG paths of the arcs between words. Arcs between words of the same line run above the
 * line. Arcs between lines start and end vertically. All arrowheads therefore point
 * straight down or up.
 *
 * @typedef {{x: number, top: number, bottom: number, line: number}} Position center of a
 *   word, its top and bottom edges, and the number of its line
 * @typedef {{lines: string, heads: string}} Paths
 */

const LEVELS = 6; // of opacity, with one path each, which keeps 20,000 arcs fast
const TIP = 4; // distance between the end of the line and the tip of the arrowhead
const BACKWARD_SCALE = 0.8; // lowers arcs to the left, so they do not cover those to the right

/**
 * Return the paths for each level of opacity, from the weakest to the strongest.
 * @param {{from: number, to: number, strength: number}[]} edges
 * @param {Position[]} positions
 * @param {{headroom: number, span: number}} size height above a line for its arcs, and the
 *   maximum horizontal distance between words
 * @returns {(Paths & {level: number})[]}
 */
export function arcPaths(edges, positions, { headroom, span }) {
  let strongest = 0;
  for (const { strength } of edges) strongest = Math.max(strongest, strength);
  const paths = Array.from({ length: LEVELS }, () => ({ lines: [], heads: [] }));
  for (const { from, to, strength } of edges) {
    const relative = strongest > 0 ? strength / strongest : 0;
    // Squared, because all edges that are shown are strong.
    const level = paths[Math.min(LEVELS - 1, Math.floor(LEVELS * relative ** 2))];
    const { line, head } = arcPath(positions[from], positions[to], headroom, span);
    level.lines.push(line);
    level.heads.push(head);
  }
  return paths.map(({ lines, heads }, index) => ({
    lines: lines.join(""),
    heads: heads.join(""),
    level: (index + 1) / LEVELS,
  }));
}

function arcPath(from, to, headroom, span) {
  if (from.line === to.line) {
    const distance = Math.sqrt(Math.abs(to.x - from.x) / span);
    const scale = to.x > from.x ? 1 : BACKWARD_SCALE;
    const height = (8 + (headroom - 8) * distance) * scale;
    // The curve reaches 3/4 of the height of its control points.
    const top = from.top - height * (4 / 3);
    return {
      line: curve([from.x, from.top], [from.x, top], [to.x, top], [to.x, to.top - TIP]),
      head: arrowhead(to.x, to.top, -1),
    };
  }
  const down = to.line > from.line;
  const start = down ? from.bottom : from.top;
  const end = down ? to.top : to.bottom;
  const bend = (end - start) / 2;
  return {
    line: curve(
      [from.x, start],
      [from.x, start + bend],
      [to.x, end - bend],
      [to.x, end + (down ? -TIP : TIP)],
    ),
    head: arrowhead(to.x, end, down ? -1 : 1),
  };
}

function curve(start, ...others) {
  const point = ([x, y]) => `${roundCoordinate(x)} ${roundCoordinate(y)}`;
  return `M${point(start)}C${others.map(point).join(" ")}`;
}

/** Return a triangle with its tip at (x, y). Its base is above (-1) or below (1). */
function arrowhead(x, y, side) {
  return `M${roundCoordinate(x)} ${roundCoordinate(y)}l-3 ${5 * side}h6z`;
}

function roundCoordinate(value) {
  return Math.round(value * 10) / 10;
}
