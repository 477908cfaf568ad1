/**
 * The numbers of a graph: one head or the mean of all, the strongest edges, and what
 * flows. `edges[i * count + j]` goes from node j to node i, and so do the flows: what j
 * passes on to i, its weight times the edge. The flows into a node sum to its weight.
 *
 * @typedef {object} View
 * @property {number} count
 * @property {number[] | null} weights
 * @property {Float64Array | null} edges
 * @property {Float64Array | null} flows
 *
 * @typedef {{from: number, to: number, strength: number}} Edge
 * @typedef {{node: number, share: number}} Flow
 */

/** More arcs than this are neither legible nor quick to draw. */
export const MOST_EDGES = 20000;

/**
 * @param {object} graph of a record
 * @param {number | null} head its number, or null for the mean of all heads
 * @returns {View}
 */
export function viewOf(graph, head) {
  const heads = head === null ? graph.heads : [graph.heads[head]];
  const weights = head === null ? graph.weights : heads[0].weights;
  const count = graph.nodes.length;
  if (!heads.length || heads.some((one) => !one.edges)) {
    return { count, weights, edges: null, flows: null };
  }
  const edges = new Float64Array(count * count);
  const flows = new Float64Array(count * count);
  for (const one of heads) {
    one.edges.forEach((row, i) => {
      for (let j = 0; j < count; j++) {
        edges[i * count + j] += row[j] / heads.length;
        flows[i * count + j] += (row[j] * one.weights[j]) / heads.length;
      }
    });
  }
  return { count, weights, edges, flows };
}

/**
 * Return the strengths of all edges between different nodes, the strongest first.
 * @param {View} view
 */
export function strengthsOf({ count, edges }) {
  const between = new Float64Array(count * Math.max(0, count - 1));
  let place = 0;
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) {
      if (i !== j) between[place++] = edges[i * count + j];
    }
  }
  return between.sort().reverse();
}

/**
 * @param {View} view
 * @param {number} least the weakest strength to show
 * @returns {Edge[]}
 */
export function edgesFrom({ count, edges }, least) {
  const found = [];
  for (let to = 0; to < count; to++) {
    for (let from = 0; from < count; from++) {
      const strength = edges[to * count + from];
      if (from !== to && strength >= least) found.push({ from, to, strength });
    }
  }
  return found;
}

/**
 * Return from which nodes the importance of one comes, the most first; itself included.
 * @returns {Flow[]}
 */
export function incomingOf({ count, flows }, node) {
  return sorted(count, (other) => flows[node * count + other]);
}

/**
 * Return to which nodes one passes its importance on, the most first.
 * @returns {Flow[]}
 */
export function outgoingOf({ count, flows }, node) {
  return sorted(count, (other) => flows[other * count + node]);
}

function sorted(count, share) {
  const all = Array.from({ length: count }, (_, node) => ({ node, share: share(node) }));
  return all.sort((one, other) => other.share - one.share);
}

/**
 * Return how strongly to color a node: 1 from three times the mean weight on.
 * @param {View} view
 */
export function shadeOf({ count, weights }, node) {
  return weights ? Math.min(1, (weights[node] * count) / 3) : 0;
}

/** Write a share of the whole for people: 12 %, 1.2 %, 0.012 %. */
export function percent(share) {
  const value = 100 * share;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toPrecision(2)} %`;
}
