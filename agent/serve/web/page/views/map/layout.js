// The layout of the graph: columns from callers to destinations. Pure and deterministic: the same
// nodes and links give the same places.

/** Size of a node, and the room between nodes. */
export const NODE = {width: 170, height: 38, across: 110, between: 14};

/** The most columns. Graphs that need more, or have many links, are drawn as a ring. */
const MOST_COLUMNS = 6;

/**
 * Returns `{places: Map(id → {x, y, angle?}), width, height, ring}`. Links of cycles are turned for
 * the columns only. A column has at most `tallest` nodes. `middle`, if there is one, is a set of
 * nodes between their callers and their destinations.
 */
export function layout(nodes, links, {middle = null, tallest = 14} = {}) {
  const ids = nodes.map(n => n.id);
  const index = new Map(ids.map((id, i) => [id, i]));
  const out = ids.map(() => []), into = ids.map(() => []);
  const linked = new Array(ids.length).fill(false);
  for (const l of links) {
    const a = index.get(l.from), b = index.get(l.to);
    if (a === undefined || b === undefined) continue;
    linked[a] = linked[b] = true;
    if (a !== b) out[a].push(b);
  }
  breakCycles(out);
  out.forEach((list, a) => list.forEach(b => into[b].push(a)));
  let rank = rankOf(out, into);
  if (middle) {
    rank = around(ids, links, index, middle, rank);
  } else if (Math.max(0, ...rank) >= MOST_COLUMNS || links.length > 5 * nodes.length) {
    return ring(nodes);
  }
  const columns = [];
  ids.forEach((_, i) => {
    if (!linked[i]) return;
    (columns[rank[i]] ||= []).push(i);
  });
  order(columns, out, into);
  const placed = columns.filter(Boolean).flatMap(c => split(c, tallest));
  const alone = ids.map((_, i) => i).filter(i => !linked[i]);
  return place(placed, alone, ids);
}

/** Removes the links that close a cycle, found in the order of the nodes. */
function breakCycles(out) {
  const state = new Array(out.length).fill(0); // 1: on the path, 2: done
  const roots = out.map((_, i) => i).sort((a, b) => out[b].length - out[a].length || a - b);
  for (const root of roots) {
    if (state[root]) continue;
    const stack = [[root, 0]];
    state[root] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1], [node, at] = top;
      if (at >= out[node].length) {
        state[node] = 2;
        stack.pop();
        continue;
      }
      const next = out[node][at];
      if (state[next] === 1) {
        out[node].splice(at, 1);
        continue;
      }
      top[1]++;
      if (!state[next]) {
        state[next] = 1;
        stack.push([next, 0]);
      }
    }
  }
}

/** Returns the column of each node: the longest way from a node that nothing calls. */
function rankOf(out, into) {
  const rank = new Array(out.length).fill(0), left = into.map(l => l.length);
  const ready = left.flatMap((n, i) => n ? [] : [i]);
  for (let at = 0; at < ready.length; at++) {
    for (const next of out[ready[at]]) {
      rank[next] = Math.max(rank[next], rank[ready[at]] + 1);
      if (!--left[next]) ready.push(next);
    }
  }
  return rank;
}

/** Puts the callers of the middle nodes before them, and all other nodes after them. */
function around(ids, links, index, middle, rank) {
  const calls = new Array(ids.length).fill(0);
  for (const l of links) {
    if (middle.has(l.to)) calls[index.get(l.from)]++;
    if (middle.has(l.from)) calls[index.get(l.to)]--;
  }
  const inside = [...new Set(ids.map((id, i) => middle.has(id) ? rank[i] : -1))].filter(r => r >= 0)
    .sort((a, b) => a - b);
  return ids.map((id, i) => middle.has(id) ? 1 + Math.min(inside.indexOf(rank[i]), 3) : calls[i] > 0 ? 0 : 5);
}

/** Places the nodes on a ring, with their names outside. */
function ring(nodes) {
  const radius = Math.max(170, nodes.length * 21 / (2 * Math.PI));
  const outside = 20 + 7 * Math.min(23, Math.max(...nodes.map(n => n.label.length)));
  const places = new Map(nodes.map(({id}, i) => {
    const angle = 2 * Math.PI * i / nodes.length - Math.PI / 2;
    return [id, {x: outside + radius * (1 + Math.cos(angle)), y: outside + radius * (1 + Math.sin(angle)), angle}];
  }));
  const size = 2 * (radius + outside);
  return {places, width: size, height: size, ring: true};
}

/** Orders the columns so that few links cross: each node near the middle of its neighbors. */
function order(columns, out, into) {
  const at = new Map();
  const number = column => column.forEach((i, n) => at.set(i, (n + 0.5) / column.length));
  columns.forEach(number);
  for (let round = 0; round < 8; round++) {
    const side = round % 2 ? out : into;
    for (const column of round % 2 ? [...columns].reverse() : columns) {
      if (!column) continue;
      const middle = new Map(column.map(i => [i, side[i].length
        ? side[i].reduce((sum, j) => sum + at.get(j), 0) / side[i].length : at.get(i)]));
      column.sort((a, b) => middle.get(a) - middle.get(b) || a - b);
      number(column);
    }
  }
}

function split(column, tallest) {
  const parts = Math.ceil(column.length / tallest), size = Math.ceil(column.length / parts), out = [];
  for (let i = 0; i < column.length; i += size) out.push(column.slice(i, i + size));
  return out;
}

function place(columns, alone, ids) {
  const places = new Map();
  const step = NODE.height + NODE.between;
  const most = Math.max(0, ...columns.map(c => c.length));
  columns.forEach((column, c) => column.forEach((i, n) => places.set(ids[i], {
    x: c * (NODE.width + NODE.across), y: (n + (most - column.length) / 2) * step})));
  const across = Math.max(1, Math.min(Math.max(columns.length * 1.5 | 0, 4), Math.ceil(alone.length / 2)));
  const top = most ? most * step + NODE.between : 0;
  alone.forEach((i, n) => places.set(ids[i], {
    x: n % across * (NODE.width + NODE.between), y: top + Math.floor(n / across) * step}));
  const all = [...places.values()];
  return {places, width: Math.max(NODE.width, ...all.map(p => p.x + NODE.width)),
    height: Math.max(NODE.height, ...all.map(p => p.y + NODE.height)), ring: false};
}
