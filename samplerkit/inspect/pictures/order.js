// The orders of the algorithm samplerkit-1, as samplerkit/order/ makes them, for layouts of fewer than 2^31 samples.
// tests/inspect/test_explorer.py compares the ids with Python's.
"use strict";

const TABLE_LIMIT = 4096;
const ROUNDS = 8;
const FILE_AWARE = new Set(["partial", "files", "infile"]);

// --- Keys: words of blake2b over six little-endian words, salted by the role ---

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
  "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
].map((row) => [...row].map((digit) => parseInt(digit, 16)));

const word = (value) => BigInt.asUintN(64, value);
const turned = (value, bits) => (value >> bits) | word(value << (64n - bits));

function wordsOfText(text) {
  let low = 0n, high = 0n;
  for (let at = 15; at >= 0; at--) {
    const byte = BigInt(at < text.length ? text.charCodeAt(at) : 0);
    if (at < 8) low = (low << 8n) | byte;
    else high = (high << 8n) | byte;
  }
  return [low, high];
}

function blake2b(six, role) {
  const h = [...IV];
  h[0] ^= 0x01010040n;
  [...wordsOfText(role), ...wordsOfText("samplerkit-1")].forEach((part, at) => (h[4 + at] ^= part));
  const v = [...h, ...IV];
  v[12] ^= 48n;
  v[14] = word(~v[14]);
  const message = [...six, ...Array(10).fill(0n)];
  const mix = (a, b, c, d, x, y) => {
    v[a] = word(v[a] + v[b] + x);
    v[d] = turned(v[d] ^ v[a], 32n);
    v[c] = word(v[c] + v[d]);
    v[b] = turned(v[b] ^ v[c], 24n);
    v[a] = word(v[a] + v[b] + y);
    v[d] = turned(v[d] ^ v[a], 16n);
    v[c] = word(v[c] + v[d]);
    v[b] = turned(v[b] ^ v[c], 63n);
  };
  for (let round = 0; round < 12; round++) {
    const m = SIGMA[round % 10].map((at) => message[at]);
    for (let at = 0; at < 4; at++) mix(at, at + 4, at + 8, at + 12, m[2 * at], m[2 * at + 1]);
    for (let at = 0; at < 4; at++) {
      mix(at, 4 + ((at + 1) & 3), 8 + ((at + 2) & 3), 12 + ((at + 3) & 3), m[8 + 2 * at], m[9 + 2 * at]);
    }
  }
  return h.map((part, at) => part ^ v[at] ^ v[at + 8]);
}

// A key yields a number of words for a block, which two indices name.
function keyOf(seed, epoch, role) {
  return (count, index = 0, subIndex = 0) => {
    const words = [];
    for (let part = 0; words.length < count; part++) {
      words.push(...blake2b([BigInt(seed), BigInt(epoch), 0n, BigInt(index), BigInt(subIndex), BigInt(part)], role));
    }
    return words.slice(0, count);
  };
}

// --- Permutations: a sorted table of hashes up to 4,096, a Feistel network above ---

// The low 64 bits of a product, in halves: BigInt takes ten times as long for each row of a table.
function product(high, low, otherHigh, otherLow) {
  const a0 = low & 0xffff, a1 = low >>> 16, b0 = otherLow & 0xffff, b1 = otherLow >>> 16;
  const first = a0 * b0;
  const second = a1 * b0 + Math.floor(first / 65536);
  const third = a0 * b1 + (second & 0xffff);
  const carry = a1 * b1 + Math.floor(second / 65536) + Math.floor(third / 65536);
  const crossed = (Math.imul(high, otherLow) + Math.imul(low, otherHigh)) >>> 0;
  return [(carry + crossed) >>> 0, (((third & 0xffff) << 16) | (first & 0xffff)) >>> 0];
}

function tableOf(size, words) {
  const halves = words.map((word) => [Number(word >> 32n), Number(word & 0xffffffffn)]);
  const hashes = new Uint32Array(2 * size);
  const mask = 2 ** Math.max(size - 1, 1).toString(2).length - 1;
  for (let counter = 0; counter < size; counter++) {
    let [high, low] = product(0, counter, 0x9e3779b9, 0x7f4a7c15);
    low += halves[0][1];
    high = (high + halves[0][0] + (low > 0xffffffff ? 1 : 0)) >>> 0;
    low >>>= 0;
    for (const [keyHigh, keyLow] of [halves[1], halves[2]]) {
      [high, low] = product(high ^ (high >>> 30), low ^ ((low >>> 30) | (high << 2)), 0xbf58476d, 0x1ce4e5b9);
      [high, low] = product(high ^ (high >>> 27), low ^ ((low >>> 27) | (high << 5)), 0x94d049bb, 0x133111eb);
      low = (low ^ ((low >>> 31) | (high << 1)) ^ keyLow) >>> 0;
      high = (high ^ (high >>> 31) ^ keyHigh) >>> 0;
    }
    hashes[2 * counter] = (low & ~mask) | counter;
    hashes[2 * counter + 1] = high;
  }
  new BigUint64Array(hashes.buffer).sort();
  return (row) => hashes[2 * row] & mask;
}

function networkOf(size, words) {
  const constants = words.map((word) => Number(word & 0xffffffffn));
  const bits = ((size - 1).toString(2).length + 1) >> 1;
  const modulus = Math.ceil(size / 2 ** bits);
  const rightMask = 2 ** bits - 1;
  return (row) => {
    let value = row;
    do {
      let left = value >>> bits, right = value & rightMask;
      for (let step = 0; step < ROUNDS; step++) {
        const moved = step % 2 === 0 ? right : left;
        let hash = (Math.imul(moved, constants[step] | 1) + constants[ROUNDS + step]) >>> 0;
        if (step % 2) {
          right = (right ^ (hash >>> (32 - bits))) >>> 0;
          continue;
        }
        hash = Math.imul(hash, hash) >>> 15;
        left += Math.imul(hash, modulus) >>> 17;
        if (left >= modulus) left -= modulus;
      }
      value = ((left << bits) | right) >>> 0;
    } while (value >= size);
    return value;
  };
}

function permutationOf(size, key, index, subIndex) {
  const isTable = size <= TABLE_LIMIT;
  const words = key(isTable ? 3 : 2 * ROUNDS, index, subIndex);
  return isTable ? tableOf(size, words) : networkOf(size, words);
}

// --- Orders: functions from a position to an id ---

// The number of the interval that contains a value, never an empty one.
function intervalOf(starts, value) {
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function startsOf(sizes) {
  const starts = [0];
  for (const size of sizes) starts.push(starts[starts.length - 1] + size);
  return starts;
}

function filesInTurn(sizes, starts, key) {
  const permuted = permutationOf(sizes.length, key);
  const files = sizes.map((_, row) => permuted(row));
  const turns = startsOf(files.map((file) => sizes[file]));
  return (row) => {
    const turn = intervalOf(turns, row);
    return row - turns[turn] + starts[files[turn]];
  };
}

function shuffledInBlocks(starts, blockSize, first, key) {
  let longest = 1;
  for (let run = 1; run < starts.length; run++) longest = Math.max(longest, starts[run] - starts[run - 1]);
  const size = Math.min(blockSize, longest);
  const missing = size - Math.min(first, size);
  const most = Math.ceil((longest + missing) / size);
  const cache = new Map();
  return (row) => {
    const run = intervalOf(starts, row);
    const block = Math.floor((row - starts[run] + missing) / size);
    const begin = Math.max(block * size - missing, 0);
    let permuted = cache.get(run * most + block);
    if (permuted === undefined) {
      const end = Math.min((block + 1) * size - missing, starts[run + 1] - starts[run]);
      permuted = permutationOf(end - begin, key, run, block);
      cache.set(run * most + block, permuted);
    }
    return starts[run] + begin + permuted(row - starts[run] - begin);
  };
}

function modeOf({ mode, sizes, adaptive_threshold: threshold }) {
  if (mode !== "adaptive") return mode;
  return sizes.reduce((sum, size) => sum + size, 0) <= threshold ? "global" : "partial";
}

// The settings have the names of Python's arguments; `lanes` may be null, for the number of ranks.
function orderOf(settings) {
  const { sizes, ranks, partial_size: block, pools, seed, epoch } = settings;
  const starts = startsOf(sizes);
  const length = starts[sizes.length];
  const mode = modeOf(settings);
  const key = (role) => keyOf(seed, epoch, role);
  const lanes = Math.min(settings.lanes ?? (FILE_AWARE.has(mode) ? ranks : 1), Math.max(1, length));
  const short = Math.floor(length / lanes), longer = length % lanes;
  const startOfLane = (lane) => lane * short + Math.min(lane, longer);
  const steps = [];
  if (lanes > 1) steps.push((row) => startOfLane(row % lanes) + Math.floor(row / lanes));
  if (mode === "partial") {
    const runs = Array.from({ length: lanes + 1 }, (_, lane) => startOfLane(lane));
    if (pools === 2) steps.push(shuffledInBlocks(runs, 2 * block, block, key("partial-2")));
    steps.push(shuffledInBlocks(runs, block * pools, block * pools, key("partial")));
  }
  if (mode === "global") steps.push(permutationOf(length, key("global")));
  if (mode === "infile") steps.push(shuffledInBlocks(starts, length || 1, length || 1, key("infile")));
  if ((mode === "files" || mode === "partial") && sizes.length > 1) steps.push(filesInTurn(sizes, starts, key("files")));
  const at = (position) => steps.reduce((row, step) => step(row), position);
  return {
    mode, length, lanes, starts, at,
    rows: Math.ceil(length / ranks), // of a rank; the last one may wrap around
    fileOf: (id) => intervalOf(starts, id),
  };
}
