// Where the nodes of a graph are drawn: longest path for the layers, barycentres for the order within them.
//
// It runs in a worker of the browser, so that the page does not stop for a large graph.

const SWEEPS = 4;
const MOST_BENDS = 400;

// An edge that passes layers gets a place in each of them, so that it is not hidden behind their nodes.
function bent(known, edges) {
  const bends = edges.map(() => []);
  let count = 0;
  edges.forEach(([from, to], index) => {
    if (!known.has(from) || !known.has(to)) return;
    const first = known.get(from).layer;
    const last = known.get(to).layer;
    if (last - first < 2 || count + last - first > MOST_BENDS) return;
    const after = known.get(from).after;
    after.splice(after.indexOf(to), 1);
    let before = from;
    for (let layer = first + 1; layer < last; layer += 1) {
      const id = `bend ${index} ${layer}`;
      known.set(id, { before: [before], after: [], layer, isBend: true });
      known.get(before).after.push(id);
      bends[index].push(id);
      before = id;
      count += 1;
    }
    known.get(before).after.push(to);
    const { before: all } = known.get(to);
    all[all.indexOf(from)] = before;
  });
  return bends;
}

// nodes: [{id, layer?}], edges: [[from, to]].  Returns Map of id to {layer, place}, the layers, and the bends of edges.
function layered(nodes, edges, isBent = false) {
  const known = new Map(nodes.map((node) => [node.id, { before: [], after: [], layer: node.layer ?? -1 }]));
  for (const [from, to] of edges) {
    if (!known.has(from) || !known.has(to) || from === to) continue;
    known.get(from).after.push(to);
    known.get(to).before.push(from);
  }
  if ([...known.values()].some((node) => node.layer < 0)) byLongestPath(known);
  const bends = isBent ? bent(known, edges) : [];
  const layers = [];
  for (const [id, node] of known) (layers[node.layer] ??= []).push(id);
  const full = layers.filter(Boolean);
  full.forEach((ids, layer) => ids.forEach((id) => { known.get(id).layer = layer; }));
  const place = new Map();
  full.forEach((ids) => ids.forEach((id, index) => place.set(id, index)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isDown = sweep % 2 === 0;
    for (const ids of isDown ? full : [...full].reverse()) {
      const middle = (id) => {
        const near = isDown ? known.get(id).before : known.get(id).after;
        return near.length ? near.reduce((sum, each) => sum + place.get(each), 0) / near.length : place.get(id);
      };
      const middles = new Map(ids.map((id) => [id, middle(id)]));
      ids.sort((a, b) => middles.get(a) - middles.get(b));
      ids.forEach((id, index) => place.set(id, index));
    }
  }
  return { layers: full, bends, at: new Map([...known].map(([id, node]) => [id, { layer: node.layer, place: place.get(id) }])) };
}

// A cycle cannot be in a graph of jobs; if one is in groups of them, its nodes come last.
function byLongestPath(known) {
  const open = new Map([...known].map(([id, node]) => [id, node.before.length]));
  const next = [...open].filter(([, count]) => !count).map(([id]) => id);
  for (const node of known.values()) node.layer = 0;
  const done = new Set();
  while (next.length) {
    const id = next.shift();
    done.add(id);
    for (const each of known.get(id).after) {
      known.get(each).layer = Math.max(known.get(each).layer, known.get(id).layer + 1);
      open.set(each, open.get(each) - 1);
      if (!open.get(each)) next.push(each);
    }
  }
  const last = Math.max(0, ...[...done].map((id) => known.get(id).layer));
  for (const [id, node] of known) if (!done.has(id)) node.layer = last + 1;
}

// The longest chain of unfinished work: what the end of the whole waits for.
function criticalPath(nodes, edges) {
  const { layers, at } = layered(nodes, edges);
  const best = new Map();
  const cameFrom = new Map();
  const weights = new Map(nodes.map((node) => [node.id, node.weight]));
  for (const ids of layers) for (const id of ids) best.set(id, weights.get(id));
  const ordered = edges.filter(([from, to]) => at.has(from) && at.has(to)).sort((a, b) => at.get(a[0]).layer - at.get(b[0]).layer);
  for (const [from, to] of ordered) {
    if (at.get(from).layer >= at.get(to).layer) continue;
    const length = best.get(from) + weights.get(to);
    if (length > best.get(to)) {
      best.set(to, length);
      cameFrom.set(to, from);
    }
  }
  let end = null;
  for (const [id, length] of best) if (end === null || length > best.get(end)) end = id;
  const path = [];
  while (end !== null && end !== undefined) {
    path.unshift(end);
    end = cameFrom.get(end);
  }
  return path;
}

// nodes: [{id, layer?, isOpen, weight}].  What is in each layer from top to bottom, the places through which each edge
// goes, and the longest open chain.
function arrange({ nodes, edges }) {
  const { layers, bends } = layered(nodes, edges, true);
  return { layers, bends, path: criticalPath(nodes.filter((node) => node.isOpen), edges) };
}

onmessage = (event) => postMessage({ id: event.data.id, ...arrange(event.data) });
