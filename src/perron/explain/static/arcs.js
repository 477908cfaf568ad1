/**
 * Arcs between words as SVG path data. Words stand in lines; an arc within a line goes
 * over it, one between lines leaves and arrives vertically. So every arrowhead points
 * straight down or up.
 *
 * @typedef {{x: number, top: number, bottom: number, line: number}} Spot the middle of
 *   a word, its upper and lower edge, and the number of its line
 * @typedef {{lines: string, heads: string}} Paths
 */

const STEPS = 6; // of darkness; a path for each keeps 20 000 arcs quick
const TIP = 4; // the line ends inside the arrowhead
const LOW = 0.8; // so that the way back does not hide the way there

/**
 * Return path data in steps of darkness, the faintest first.
 * @param {{from: number, to: number, strength: number}[]} edges
 * @param {Spot[]} spots
 * @param {{room: number, widest: number}} size the height above a line for its arcs, and
 *   the most that lies between two words of a line
 * @returns {(Paths & {darkness: number})[]}
 */
export function arcsOf(edges, spots, { room, widest }) {
  let strongest = 0;
  for (const { strength } of edges) strongest = Math.max(strongest, strength);
  const parts = Array.from({ length: STEPS }, () => ({ lines: [], heads: [] }));
  for (const { from, to, strength } of edges) {
    const relative = strongest > 0 ? strength / strongest : 0;
    // Squared, as the edges that are shown are all among the strongest.
    const step = parts[Math.min(STEPS - 1, Math.floor(STEPS * relative ** 2))];
    const { line, head } = arc(spots[from], spots[to], room, widest);
    step.lines.push(line);
    step.heads.push(head);
  }
  return parts.map(({ lines, heads }, step) => ({
    lines: lines.join(""),
    heads: heads.join(""),
    darkness: (step + 1) / STEPS,
  }));
}

function arc(from, to, room, widest) {
  if (from.line === to.line) {
    const reach = Math.sqrt(Math.abs(to.x - from.x) / widest);
    const height = (8 + (room - 8) * reach) * (to.x > from.x ? 1 : LOW);
    // Control points lie 4/3 as high as the curve rises.
    const high = from.top - height * (4 / 3);
    return {
      line: curve([from.x, from.top], [from.x, high], [to.x, high], [to.x, to.top - TIP]),
      head: arrow(to.x, to.top, -1),
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
    head: arrow(to.x, end, down ? -1 : 1),
  };
}

function curve(start, ...others) {
  const point = ([x, y]) => `${number(x)} ${number(y)}`;
  return `M${point(start)}C${others.map(point).join(" ")}`;
}

/** A small triangle with its tip at (x, y); side is where its base lies. */
function arrow(x, y, side) {
  return `M${number(x)} ${number(y)}l-3 ${5 * side}h6z`;
}

function number(value) {
  return Math.round(value * 10) / 10;
}
