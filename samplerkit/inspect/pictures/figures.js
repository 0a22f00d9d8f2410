// Figures of an order in the epoch that is shown: its mixing, and the number of files that ranks open.
"use strict";

const COUNTED = 32768; // for longer orders, only some windows and steps are read
const MAX_STEPS = 256;

// Evenly spaced numbers in [0, count), at most `most`.
function evenly(count, most) {
  const chosen = Math.min(count, most);
  return Array.from({ length: chosen }, (_, at) => Math.floor((at * count) / chosen));
}

// The same order; the ids of a short one are computed once.
function remembered(order) {
  if (order.length > COUNTED) return order;
  const ids = Float64Array.from({ length: order.length }, (_, position) => order.at(position));
  return { ...order, at: (position) => ids[position] };
}

// Mixing: the smaller of file mixing and spread, each a mean over windows of 1, 2, 4, up to 64 batches.
function mixingOf(order, batch) {
  const half = Math.floor(order.length / 2);
  let sizes = [];
  for (let doubling = 0; doubling < 7; doubling++) sizes.push(batch * 2 ** doubling);
  sizes = sizes.filter((size) => size >= 2 && size <= half);
  if (!sizes.length) sizes = [half];
  const most = order.length <= COUNTED ? 64 : 4;
  const pairs = order.length * (order.length - 1);
  let sharing = 0;
  for (let file = 1; file < order.starts.length; file++) {
    const size = order.starts[file] - order.starts[file - 1];
    sharing += (size * (size - 1)) / pairs;
  }
  const meanDistance = (order.length + 1) / 3;
  let files = 0, spread = 0;
  for (const size of sizes) {
    // At any place, also across the ends, so that each pair of samples counts once for each window that holds it.
    const places = evenly(order.length + size - 3, Math.max(2, Math.min(most, Math.floor((4 * COUNTED) / size))));
    let same = 0, distance = 0, seen = 0;
    for (const place of places) {
      const begin = Math.max(0, place + 2 - size);
      const count = Math.min(order.length, place + 2) - begin;
      const ids = Float64Array.from({ length: count }, (_, at) => order.at(begin + at)).sort();
      let file = -1, run = 0;
      ids.forEach((id, at) => {
        distance += (2 * at - count + 1) * id;
        if (file < 0 || id >= order.starts[file + 1]) [file, run] = [order.fileOf(id), 0];
        same += run++;
      });
      seen += (count * (count - 1)) / 2;
    }
    files += (1 - same / seen) / (1 - sharing) / sizes.length;
    spread += distance / seen / meanDistance / sizes.length;
  }
  return sharing < 1 ? Math.min(files, spread) : spread;
}

// For each rank the number of samples that it reads of each file; and the mean number of files in a batch.
function filesOf(order, ranks, batch) {
  const steps = Math.ceil(order.rows / batch);
  const sampled = evenly(steps, order.length <= COUNTED ? steps : MAX_STEPS);
  const read = Array.from({ length: ranks }, () => new Map());
  let met = 0;
  for (let rank = 0; rank < ranks; rank++) {
    for (const step of sampled) {
      const files = new Set();
      for (let row = step * batch; row < Math.min((step + 1) * batch, order.rows); row++) {
        const file = order.fileOf(order.at((row * ranks + rank) % order.length));
        files.add(file);
        read[rank].set(file, (read[rank].get(file) ?? 0) + 1);
      }
      met += files.size;
    }
  }
  return { read, ofABatch: met / (sampled.length * ranks), isCounted: sampled.length === steps };
}

// The same order as Python code.
function pythonOf(settings) {
  const groups = [];
  for (const size of settings.sizes) {
    const last = groups[groups.length - 1];
    if (last && last[0] === size) last[1]++;
    else groups.push([size, 1]);
  }
  const sizes = groups.map(([size, count]) => (count > 1 ? `[${size}] * ${count}` : `[${size}]`)).join(" + ");
  const given = [`${settings.ranks}, 0, shuffle="${settings.mode}"`, `seed=${settings.seed}`];
  const mode = modeOf(settings);
  if (mode === "partial") given.push(`partial_size=${settings.partial_size}`);
  if (mode === "partial" && settings.pools !== 1) given.push(`pools=${settings.pools}`);
  if (settings.mode === "adaptive") given.push(`adaptive_threshold=${settings.adaptive_threshold}`);
  if (settings.lanes !== null) given.push(`lanes=${settings.lanes}`);
  const sampler = `sk.DistributedSampler(${given.join(", ")})`;
  const layout = groups.length > 8 ? "sk.load_config(path).dataset" : `sk.Layout(${sizes})`;
  return `sampler = ${sampler}\nsampler.order(${layout}, epoch=${settings.epoch})`;
}
