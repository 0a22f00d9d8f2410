// Controls; pictures are drawn only when a setting changes.
"use strict";

const MEANINGS = {
  global: "One permutation of all samples: the best mixing, but a batch needs nearly every file.",
  partial: "The files are shuffled, then the samples in blocks. Each rank reads its own files, and holds those of one block at a time.",
  files: "The files in random order, the samples of each in storage order.",
  infile: "The files in storage order, the samples of each shuffled.",
  adaptive: "GLOBAL up to a number of samples, PARTIAL above it.",
  false: "Storage order, without a shuffle: for evaluation.",
};
const LARGEST = 2 ** 31 - 1;
// Name, label, smallest and largest number, and the end of the slider; null for numbers without a slider.
const NUMBERS = [
  ["ranks", "Ranks", 1, 1024, 16],
  ["files", "Files", 1, 10000, 64],
  ["samples", "Samples", 4, LARGEST, 12000],
  ["partial_size", "Block size", 1, LARGEST, 0],
  ["adaptive_threshold", "Adaptive threshold", 0, LARGEST, 0],
  ["batch", "Batch size per rank", 1, 4096, 32],
  ["seed", "Seed", 0, null, null],
  ["epoch", "Epoch", 0, LARGEST, 20],
];
const byId = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en");
const given = JSON.parse(byId("given").textContent);
const total = (sizes) => sizes.reduce((sum, size) => sum + size, 0);
const chosen = { ...given, files: given.sizes.length, samples: total(given.sizes) };
const cursor = { step: 0, rank: 0 };
const controls = {};
let shown = null;

// If the samples do not divide evenly, the first files have one more.
function equalSizes(samples, files) {
  return Array.from({ length: files }, (_, file) => Math.floor(samples / files) + (file < samples % files ? 1 : 0));
}

function settings() {
  const isGiven = chosen.files === given.sizes.length && chosen.samples === total(given.sizes);
  return { ...chosen, sizes: isGiven ? given.sizes : equalSizes(chosen.samples, chosen.files) };
}

function read(name, text, least, most) {
  if (!/^\d{1,20}$/.test(text.trim())) return null;
  const value = BigInt(text.trim());
  if (value < BigInt(least) || value >= (most === null ? 1n << 64n : BigInt(most) + 1n)) return null;
  return name === "seed" ? String(value) : Number(value);
}

function makeControls() {
  for (const mode of Object.keys(MEANINGS)) {
    const label = document.createElement("label");
    label.innerHTML = `<input type="radio" name="mode" value="${mode}"><span>${mode.toUpperCase()}</span>`;
    label.firstChild.checked = mode === chosen.mode;
    label.firstChild.addEventListener("change", () => change("mode", mode));
    document.querySelector(".choices").append(label);
  }
  for (const [name, text, least, most, end] of NUMBERS) {
    const place = document.createElement("div");
    place.className = "setting";
    place.innerHTML = `<label for="${name}">${text}</label><input id="${name}" inputmode="numeric" type="text"
      autocomplete="off">${end === null ? "" : `<input type="range" aria-label="${text}" min="${least}">`}
      <output for="${name}"></output>`;
    byId("settings").append(place);
    const [typed, slid] = place.querySelectorAll("input");
    controls[name] = { place, typed, slid, output: place.querySelector("output"), end };
    typed.addEventListener("input", () => {
      const value = read(name, typed.value, least, most);
      typed.setAttribute("aria-invalid", String(value === null));
      controls[name].output.textContent = value === null ? `${grouped(least)} to ${most === null ? "2^64 \u2212 1" : grouped(most)}` : "";
      if (value !== null) change(name, value, typed);
    });
    // An invalid number is replaced by the one that the pictures show.
    typed.addEventListener("blur", () => showControls());
    if (slid) slid.addEventListener("input", () => change(name, Number(slid.value), slid));
  }
  byId("settings").addEventListener("submit", (event) => event.preventDefault());
}

function change(name, value, by) {
  chosen[name] = value;
  if (name === "files") chosen.samples = Math.max(chosen.samples, value);
  if (name === "samples") chosen.files = Math.min(chosen.files, value);
  requestAnimationFrame(() => show(by));
}

function showControls(by) {
  const { mode } = shown.order;
  const ends = { partial_size: Math.max(8 * Math.ceil(chosen.samples / chosen.files), 8), adaptive_threshold: 2 * chosen.samples };
  for (const [name, control] of Object.entries(controls)) {
    if (control.typed !== by) {
      control.typed.value = chosen[name];
      control.typed.setAttribute("aria-invalid", "false");
      control.output.textContent = "";
    }
    if (control.slid) {
      control.slid.max = Math.max(control.end, ends[name] ?? 0, name in ends ? 0 : chosen[name]);
      if (control.slid !== by) control.slid.value = chosen[name];
    }
    const isIdle = (name === "partial_size" && mode !== "partial") || (name === "adaptive_threshold" && chosen.mode !== "adaptive");
    control.place.classList.toggle("idle", isIdle);
    for (const input of [control.typed, control.slid]) if (input) input.disabled = isIdle;
  }
  const held = chosen.partial_size / (chosen.samples / chosen.files);
  controls.partial_size.output.textContent = `${held.toFixed(held < 10 ? 1 : 0)} files per block`;
  byId("meaning").textContent = MEANINGS[chosen.mode] + (chosen.mode === "adaptive" ? ` Here it is ${mode.toUpperCase()}.` : "");
}

function show(by) {
  const current = settings();
  const order = remembered(orderOf(current));
  const { ranks, batch } = current;
  const idAt = (rank, row) => order.at((row * ranks + rank) % order.length);
  shown = { current, order, ranks, batch, idAt, steps: Math.ceil(order.rows / batch), files: filesOf(order, ranks, batch) };
  cursor.step = Math.min(cursor.step, shown.steps - 1);
  cursor.rank = Math.min(cursor.rank, ranks - 1);
  showControls(by);
  showFigures(mixingOf(order, ranks * batch));
  byId("code").textContent = pythonOf(current);
  paint();
}

function showFigures(mixing) {
  const { read, ofABatch, isCounted } = shown.files;
  const { files } = chosen;
  const most = Math.max(...read.map((counts) => counts.size));
  const readers = new Map();
  for (const counts of read) for (const file of counts.keys()) readers.set(file, (readers.get(file) ?? 0) + 1);
  const shared = [...readers.values()].filter((count) => count > 1).length;
  const about = isCounted ? "" : "\u2265\u2009";
  byId("mixing").textContent = mixing.toFixed(2);
  byId("of-a-batch").innerHTML = `${ofABatch.toFixed(1)} <small>of ${grouped(files)}</small>`;
  byId("of-a-rank").innerHTML = `${about}${grouped(most)} <small>of ${grouped(files)}</small>`;
  byId("shared").innerHTML = `${about}${grouped(shared)} <small>of ${grouped(files)}</small>`;
  byId("summary").textContent = `${shown.order.mode}: mixing ${mixing.toFixed(2)}, ${ofABatch.toFixed(1)} files per batch, ` +
    `${most} files per rank, ${shared} files read by several ranks.`;
}

makeControls();
makePictures();
show();
