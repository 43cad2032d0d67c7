// Draws maps: the picture with outcomes, the map of a quantity, the strip of rounds.

function rampColour(x, ramp) {
  const at = Math.max(0, Math.min(1, x)) * (ramp.length - 1), i = Math.min(ramp.length - 2, Math.floor(at));
  const [a, b] = [ramp[i], ramp[i + 1]].map((h) => [1, 3, 5].map((k) => parseInt(h.slice(k, k + 2), 16)));
  return 'rgb(' + a.map((v, k) => Math.round(v + (b[k] - v) * (at - i))).join(',') + ')';
}

function fit(canvas) { // a clean canvas with one pixel per pixel of the screen
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  const height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
  const g = canvas.getContext('2d');
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  g.clearRect(0, 0, width, height);
  return g;
}

function board(canvas, p) { // a canvas as a grid of cells with whole-pixel edges
  const [rows, columns] = p.header.grid;
  canvas.style.aspectRatio = columns + ' / ' + rows;
  const g = fit(canvas), w = canvas.width / columns, h = canvas.height / rows;
  const x = (column) => Math.round(column * w), y = (row) => Math.round(row * h);
  const at = (place) => {
    const c = place % columns, r = Math.floor(place / columns);
    return [x(c), y(r), x(c + 1) - x(c), y(r + 1) - y(r)];
  };
  return { g, w, rows, columns, at, box: (pos) => at(spot(p, pos)), dpr: devicePixelRatio };
}

const SHAPES = { // strokes and fills in a square from -1 to 1
  dot: (path) => path.arc(0, 0, 0.42, 0, 7),
  square: (path) => path.rect(-0.6, -0.6, 1.2, 1.2),
  bar: (path) => path.rect(-0.75, -0.2, 1.5, 0.4),
  triangle: (path) => { path.moveTo(0, -0.95); path.lineTo(0.95, 0.75); path.lineTo(-0.95, 0.75); path.closePath(); },
  cross: (path) => { path.moveTo(-0.7, -0.7); path.lineTo(0.7, 0.7); path.moveTo(0.7, -0.7); path.lineTo(-0.7, 0.7); },
  plus: (path) => { path.moveTo(-0.9, 0); path.lineTo(0.9, 0); path.moveTo(0, -0.9); path.lineTo(0, 0.9); },
};

function drawGlyph(g, outcome, x, y, r) {
  const { shape } = outcomes[outcome], path = new Path2D(), halo = root.dataset.theme === 'dark' ? '#16171a' : '#ffffff';
  SHAPES[shape](path);
  const thin = shape === 'cross' || shape === 'plus';
  g.save();
  g.translate(x, y);
  g.scale(r, r);
  g.lineCap = g.lineJoin = 'round';
  g.lineWidth = thin ? 0.85 : 0.45;
  g.strokeStyle = halo;
  g.stroke(path);
  g.lineWidth = 0.46;
  g.strokeStyle = g.fillStyle = colour(outcome);
  if (thin) g.stroke(path); else g.fill(path);
  g.restore();
}

const stamps = new Map(); // a tinted cell with its glyph, drawn once per outcome, size and theme

function stamp(outcome, width, height) {
  const key = [outcome, width, height, root.dataset.theme].join();
  if (!stamps.has(key)) {
    if (stamps.size > 200) stamps.clear();
    const canvas = Object.assign(document.createElement('canvas'), { width, height }), g = canvas.getContext('2d');
    g.globalAlpha = outcome === 'exact' ? 0.3 : 0.5; // most cells are plainly accepted: let the picture show through
    g.fillStyle = colour(outcome);
    g.fillRect(0, 0, width, height);
    g.globalAlpha = 1;
    drawGlyph(g, outcome, width / 2, height / 2, Math.min(width, height) * 0.31);
    stamps.set(key, canvas);
  }
  return stamps.get(key);
}

function hatch(g, [x, y, w, h], ink) { // the look of "not applicable"
  g.save();
  g.beginPath(); g.rect(x, y, w, h); g.clip();
  g.strokeStyle = ink.faint;
  g.lineWidth = Math.max(1, w / 18);
  g.beginPath();
  for (let k = -1; k < 1; k += 1 / 3) { g.moveTo(x + k * w, y + h); g.lineTo(x + k * w + h, y); }
  g.stroke();
  g.restore();
}

function outline(b, p, from, to, inset) { // the border of the cells generated as numbers from … to − 1, as one path
  const path = new Path2D(), places = new Set(p.order.slice(from, to).map((pos) => spot(p, pos)));
  for (const place of places) {
    const [x, y, w, h] = b.at(place), c = place % b.columns;
    const l = x + inset, t = y + inset, r = x + w - inset, d = y + h - inset;
    if (!places.has(place - b.columns)) { path.moveTo(x, t); path.lineTo(x + w, t); }
    if (!places.has(place + b.columns)) { path.moveTo(x, d); path.lineTo(x + w, d); }
    if (c === 0 || !places.has(place - 1)) { path.moveTo(l, y); path.lineTo(l, y + h); }
    if (c === b.columns - 1 || !places.has(place + 1)) { path.moveTo(r, y); path.lineTo(r, y + h); }
  }
  return path;
}

function drawLines(b, p, ink) { // drafts of the last round dashed, what it settled solid, the selected cell on top
  const { g, dpr } = b, cells = b.rows * b.columns, r = p.rounds[done(p) - 1], s = selected();
  call('map', b, p, ink);
  if (r && !over(p)) {
    g.strokeStyle = ink.text;
    g.lineWidth = 1.25 * dpr;
    g.setLineDash([3 * dpr, 2.5 * dpr]);
    g.stroke(outline(b, p, r.start + r.committed, Math.min(cells, r.start + r.drafted), dpr));
    g.setLineDash([]);
    g.lineWidth = 4 * dpr; g.strokeStyle = ink.page;
    g.stroke(outline(b, p, r.start, r.start + r.committed, dpr));
    g.lineWidth = 2 * dpr; g.strokeStyle = ink.text;
    g.stroke(outline(b, p, r.start, r.start + r.committed, dpr));
  }
  if (s >= 0 && s < cells) {
    const [x, y, w, h] = b.box(s);
    g.lineWidth = 5 * dpr; g.strokeStyle = '#ffffff'; g.strokeRect(x, y, w, h);
    g.lineWidth = 2.5 * dpr; g.strokeStyle = '#111111'; g.strokeRect(x, y, w, h);
  }
}

function picturesAt(p, n) { // the picture of this moment and, for cells it does not know yet, the next one that does
  const ready = p.pictures.filter((q) => q.image.complete && q.image.naturalWidth);
  const now = ready.filter((q) => q.round < done(p)).pop();
  return [now, ready.find((q) => q.cells >= n)].filter(Boolean);
}

function drawPicture(slot, p, ink) {
  const b = board($('.picture', slot), p), { g } = b, n = settled(p), alpha = $('.opacity').value / 100;
  const pictures = picturesAt(p, n);
  g.imageSmoothingEnabled = false;
  for (let k = 0; k < n; k++) {
    const pos = p.order[k], box = b.box(pos), source = pictures.find((q) => k < q.cells), { outcome, test } = p.cells[pos];
    if (source) copyCell(b, source.image, pos, box);
    else { g.fillStyle = ink.faint; g.fillRect(...box); }
    g.globalAlpha = view.only && view.only !== outcome ? alpha * 0.12 : alpha;
    if (alpha) g.drawImage(stamp(outcome, box[2], box[3]), box[0], box[1]);
    g.globalAlpha = 1;
    if (alpha && test && test.fallback) drawFallback(g, box, ink);
  }
  drawLines(b, p, ink);
}

function drawFallback(g, [x, y, w, h], ink) { // a corner: the replacement did not come from the residual law
  g.fillStyle = ink.text;
  g.beginPath(); g.moveTo(x, y); g.lineTo(x + w * 0.45, y); g.lineTo(x, y + h * 0.45); g.fill();
}

function copyCell(b, image, pos, box) {
  const w = image.naturalWidth / b.columns, h = image.naturalHeight / b.rows;
  b.g.drawImage(image, (pos % b.columns) * w, Math.floor(pos / b.columns) * h, w, h, ...box);
}

function drawLayer(slot, p, ink, key) {
  const b = board($('.layer-map', slot), p), top = layerTop(key), n = settled(p), { scale } = layers[key];
  const log = (v) => (top > 0 ? Math.log1p(Math.abs(v)) / Math.log1p(top) : 0);
  const share = { log, linear: (v) => v / top, signed: (v) => 0.5 + 0.5 * Math.sign(v) * log(v) }[scale];
  for (let k = 0; k < n; k++) {
    const pos = p.order[k], value = layerValue(p.cells[pos], key), box = b.box(pos);
    if (value === null) { hatch(b.g, box, ink); continue; }
    b.g.fillStyle = rampColour(top > 0 ? share(value) : 0, scale === 'signed' ? SIGNED : RAMP);
    b.g.fillRect(...box);
  }
  drawLines(b, p, ink);
}

function drawStrip(slot, p) { // a column per round, as high as the cells it settled, in the colours of their outcomes
  const g = fit($('.strip', slot)), { width, height } = g.canvas, w = width / Math.max(1, ...view.panels.map((q) => q.rounds.length));
  const unit = height / Math.max(...view.panels.map((q) => q.longest)), level = (k) => height - Math.round(k * unit);
  p.rounds.forEach((r, i) => {
    const x = Math.round(i * w), thick = Math.max(1, Math.round((i + 1) * w) - x - (w > 3 ? devicePixelRatio : 0));
    g.globalAlpha = i < done(p) ? 1 : 0.22;
    r.cells.outcome.forEach((o, k) => {
      g.fillStyle = colour(o);
      g.fillRect(x, level(k + 1), thick, level(k) - level(k + 1));
    });
  });
  g.globalAlpha = 1;
}

function drawRamp(canvas, ramp) {
  const g = fit(canvas), { width, height } = canvas;
  for (let x = 0; x < width; x++) { g.fillStyle = rampColour(x / (width - 1), ramp); g.fillRect(x, 0, 1, height); }
}

function inks() {
  const style = getComputedStyle(root), get = (name) => style.getPropertyValue(name).trim();
  return { text: get('--ink'), page: get('--page'), faint: get('--faint') };
}
