// The three pictures: a ribbon of samples for each rank, a map of steps and samples, and the files of each rank.
"use strict";

const MAX_POINTS = 20000;

// From dark blue over green to amber with increasing lightness, so that colours differ for colour-blind readers and in grey.
function colourOf(file, files) {
  const style = getComputedStyle(document.documentElement);
  const low = Number(style.getPropertyValue("--low")), high = Number(style.getPropertyValue("--high"));
  const part = files > 1 ? file / (files - 1) : 0.35;
  return `oklch(${low + (high - low) * part} ${0.13 - 0.02 * part} ${282 - 222 * part})`;
}

function canvasOf(id, height) {
  const canvas = byId(id);
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(["paper", "ink", "quiet", "line", "accent"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return { canvas, pen, width, colours };
}

function palette() {
  return shown.current.sizes.map((_, file) => colourOf(file, shown.current.sizes.length));
}

const MARGIN = 24; // for the numbers of ranks

function ribbonsPlace(width) {
  const { ranks, steps } = shown;
  const columns = evenly(steps, Math.floor((width - MARGIN) / 3));
  const gap = ranks > 16 ? 2 : 8;
  const height = Math.max(6, Math.min(64, Math.floor(420 / ranks) - gap));
  return { columns, gap, height, column: (width - MARGIN) / columns.length };
}

function paintRibbons() {
  const { ranks, batch, order, idAt, steps } = shown;
  const wide = byId("ribbons").clientWidth;
  const place = ribbonsPlace(wide);
  const { pen, colours } = canvasOf("ribbons", ranks * (place.height + place.gap) + 18);
  const inks = palette();
  for (let rank = 0; rank < ranks; rank++) {
    const top = rank * (place.height + place.gap);
    pen.fillStyle = rank === cursor.rank ? colours.ink : colours.quiet;
    if (place.height > 9 || rank % 4 === 0) pen.fillText(String(rank), 0, top + place.height / 2);
    place.columns.forEach((step, at) => {
      const rows = Math.min(batch, order.rows - step * batch);
      const seen = Math.min(rows, place.height);
      const left = MARGIN + at * place.column;
      for (let cell = 0; cell < seen; cell++) {
        pen.fillStyle = inks[order.fileOf(idAt(rank, step * batch + Math.floor((cell * rows) / seen)))];
        const cut = place.column > 5 && place.height / seen > 5 ? 0.75 : 0;
        const high = place.height / Math.min(batch, place.height);
        pen.fillRect(left, top + cell * high, Math.ceil(place.column) - cut, Math.ceil(high) - cut);
      }
    });
  }
  const bottom = ranks * (place.height + place.gap) + 8;
  pen.fillStyle = colours.quiet;
  pen.fillText("step 0", MARGIN, bottom);
  pen.textAlign = "right";
  pen.fillText(grouped(steps - 1), wide, bottom);
  const at = Math.max(0, place.columns.findLastIndex((step) => step <= cursor.step));
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 2;
  const top = cursor.rank * (place.height + place.gap);
  pen.strokeRect(MARGIN + at * place.column - 1, top - 1, place.column + 2, place.height + 2);
}

function showPointed() {
  const { batch, order, idAt, steps, current } = shown;
  const rows = Math.min(batch, order.rows - cursor.step * batch);
  const ids = Array.from({ length: rows }, (_, row) => idAt(cursor.rank, cursor.step * batch + row));
  const files = [...new Set(ids.map(order.fileOf))].sort((a, b) => a - b);
  const few = (list) => list.slice(0, 6).map(grouped).join(", ") + (list.length > 6 ? ", \u2026" : "");
  const text = `Step ${grouped(cursor.step)}, rank ${cursor.rank}: samples ${few(ids)}; ` +
    `${files.length === 1 ? "file" : `${files.length} files:`} ${few(files)}`;
  byId("pointed").textContent = text;
  const ribbons = byId("ribbons");
  ribbons.setAttribute("aria-valuemax", steps - 1);
  ribbons.setAttribute("aria-valuenow", cursor.step);
  ribbons.setAttribute("aria-valuetext", text);
  byId("map").setAttribute("aria-label", `Steps against samples in storage order: ${MEANINGS[current.mode]}`);
}

function paintMap() {
  const { ranks, batch, order, idAt, steps, current } = shown;
  const height = 300;
  const { pen, width, colours } = canvasOf("map", height + 18);
  const inks = palette();
  const yOf = (id) => (id / order.length) * height;
  pen.fillStyle = colours.line;
  if (current.sizes.length <= 100) for (const start of order.starts) pen.fillRect(MARGIN, Math.min(yOf(start), height - 1), width, 1);
  const stride = Math.max(1, Math.ceil(order.length / MAX_POINTS / batch));
  const size = Math.max(1.5, Math.min(4, 130 / Math.sqrt(Math.min(order.length, MAX_POINTS))));
  for (const isPointed of [false, true]) {
    pen.globalAlpha = isPointed || ranks === 1 ? 1 : 0.4;
    for (let rank = 0; rank < ranks; rank++) {
      if ((rank === cursor.rank) !== isPointed) continue;
      for (let step = 0; step < steps; step += stride) {
        for (let row = step * batch; row < Math.min((step + 1) * batch, order.rows); row++) {
          const id = idAt(rank, row);
          pen.fillStyle = inks[order.fileOf(id)];
          const grown = isPointed && ranks > 1 ? 1.4 : 1;
          pen.fillRect(MARGIN + (row / order.rows) * (width - MARGIN - 4), yOf(id) - (size * grown) / 2, size * grown, size * grown);
        }
      }
    }
  }
  pen.globalAlpha = 1;
  current.sizes.forEach((_, file) => {
    pen.fillStyle = inks[file];
    pen.fillRect(MARGIN - 12, yOf(order.starts[file]) + 0.5, 7, Math.max(1, yOf(order.starts[file + 1]) - yOf(order.starts[file]) - 1));
  });
  pen.fillStyle = colours.quiet;
  pen.fillText("step 0", MARGIN, height + 10);
  pen.textAlign = "right";
  pen.fillText(grouped(steps - 1), width, height + 10);
}

function paintShares() {
  const { ranks, files, current } = shown;
  const count = current.sizes.length;
  const tall = Math.max(5, Math.min(26, Math.floor(300 / ranks)));
  const { canvas, pen, width, colours } = canvasOf("shares", ranks * tall + 18);
  const inks = palette();
  const wide = (width - MARGIN) / count;
  files.read.forEach((read, rank) => {
    pen.fillStyle = rank === cursor.rank ? colours.ink : colours.quiet;
    if (tall > 9 || rank % 4 === 0) pen.fillText(String(rank), 0, rank * tall + tall / 2);
    const most = Math.max(1, ...(files.isCounted ? [0] : read.values()));
    for (let file = 0; file < count; file++) {
      const [left, top, across, down] = [MARGIN + file * wide, rank * tall, wide > 4 ? wide - 1 : wide, tall > 4 ? tall - 1 : tall];
      pen.fillStyle = colours.line;
      pen.fillRect(left, top, across, down);
      const part = (read.get(file) ?? 0) / (files.isCounted ? Math.max(1, current.sizes[file]) : most);
      if (!part) continue;
      pen.fillStyle = inks[file];
      const full = Math.min(1, Math.max(part, 1 / down)) * down;
      pen.fillRect(left, top + down - full, across, full);
    }
  });
  pen.fillStyle = colours.quiet;
  pen.fillText("file 0", MARGIN, ranks * tall + 10);
  pen.textAlign = "right";
  pen.fillText(grouped(count - 1), width, ranks * tall + 10);
  canvas.setAttribute("aria-label", files.read.slice(0, 16).map((read, rank) => `rank ${rank}: ${read.size} files`).join("; "));
}

function paint() {
  paintRibbons();
  showPointed();
  paintMap();
  paintShares();
  fitFrame();
}

function point(step, rank) {
  cursor.step = Math.max(0, Math.min(shown.steps - 1, step));
  cursor.rank = Math.max(0, Math.min(shown.ranks - 1, rank));
  paint();
}

function fitFrame() {
  try {
    if (window.frameElement) window.frameElement.style.height = `${document.documentElement.scrollHeight}px`;
  } catch {
    // In a frame of another origin the page scrolls.
  }
}

function makePictures() {
  const ribbons = byId("ribbons");
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [-LARGEST, 0], End: [LARGEST, 0] };
  ribbons.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    point(cursor.step + move[0], cursor.rank + move[1]);
  });
  ribbons.addEventListener("pointermove", (event) => {
    const place = ribbonsPlace(ribbons.clientWidth);
    const at = Math.floor((event.offsetX - MARGIN) / place.column);
    point(place.columns[Math.max(0, Math.min(place.columns.length - 1, at))], Math.floor(event.offsetY / (place.height + place.gap)));
  });
  new ResizeObserver(() => requestAnimationFrame(() => shown && paint())).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  if (window.self !== window.top) document.documentElement.classList.add("framed");
}
