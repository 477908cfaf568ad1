/**
 * Weights, edges and flows of a graph, for one head or averaged over all heads.
 * `edges[i * count + j]` is the edge from node j to node i. `flows` has the same layout;
 * a flow is the edge times the weight of j. The flows into a node sum to its weight.
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

/** Maximum number of arcs; more would be neither legible nor fast to draw. */
export const MAX_EDGES = 20000;

/**
 * @param {object} graph graph of a record
 * @param {number | null} head index of the head, or null for the mean of all heads
 * @returns {View}
 */
export function createView(graph, head) {
  const heads = head === null ? graph.heads : [graph.heads[head]];
  const weights = head === null ? graph.weights : heads[0].weights;
  const count = graph.nodes.length;
  if (!heads.length || heads.some((each) => !each.edges)) {
    return { count, weights, edges: null, flows: null };
  }
  const edges = new Float64Array(count * count);
  const flows = new Float64Array(count * count);
  for (const each of heads) {
    each.edges.forEach((row, i) => {
      for (let j = 0; j < count; j++) {
        edges[i * count + j] += row[j] / heads.length;
        flows[i * count + j] += (row[j] * each.weights[j]) / heads.length;
      }
    });
  }
  return { count, weights, edges, flows };
}

/**
 * Return the strengths of all edges between different nodes, in descending order.
 * @param {View} view
 */
export function sortedStrengths({ count, edges }) {
  const strengths = new Float64Array(count * Math.max(0, count - 1));
  let index = 0;
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) {
      if (i !== j) strengths[index++] = edges[i * count + j];
    }
  }
  return strengths.sort().reverse();
}

/**
 * Return the edges between different nodes that have at least this strength.
 * @param {View} view
 * @param {number} threshold
 * @returns {Edge[]}
 */
export function strongEdges({ count, edges }, threshold) {
  const result = [];
  for (let to = 0; to < count; to++) {
    for (let from = 0; from < count; from++) {
      const strength = edges[to * count + from];
      if (from !== to && strength >= threshold) result.push({ from, to, strength });
    }
  }
  return result;
}

/**
 * Return the flows into a node, including from itself, in descending order.
 * @returns {Flow[]}
 */
export function incomingFlows({ count, flows }, node) {
  return sortedFlows(count, (other) => flows[node * count + other]);
}

/**
 * Return the flows out of a node, including to itself, in descending order.
 * @returns {Flow[]}
 */
export function outgoingFlows({ count, flows }, node) {
  return sortedFlows(count, (other) => flows[other * count + node]);
}

function sortedFlows(count, shareOf) {
  const flows = Array.from({ length: count }, (_, node) => ({ node, share: shareOf(node) }));
  return flows.sort((a, b) => b.share - a.share);
}

/**
 * Return how strongly to color a node, from 0 to 1 at three times the mean weight.
 * @param {View} view
 */
export function colorStrength({ count, weights }, node) {
  return weights ? Math.min(1, (weights[node] * count) / 3) : 0;
}

/** Format a share as 12 %, 1.2 % or 0.012 %. */
export function formatPercent(share) {
  const value = 100 * share;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toPrecision(2)} %`;
}
