// The live map: reads a growing string of JSON lines, keeps every event, and draws the state at one round of one clock.
//
// Runs once, when the component is mounted, with `element`, `trigger`, `props` and `watch`. Text is written with
// textContent only. All view state (time, selection, layer) lives here; the server only appends to the string.
// Sections: reading, state at the clock, drawing, words, one frame, hands.

const root = element.querySelector('.csd-viewer');
const $ = (selector, from = root) => from.querySelector(selector);
const { outcomes, layers, ramp: RAMP, signed: SIGNED } = JSON.parse(JSON.stringify(props.palette)); // plain copies: props is a slow proxy
const slots = [...root.querySelectorAll('.panel')];
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const FRESH = { text: '', part: '', run: null, panels: [], clock: 0, playing: false, follow: false, hover: -1, chosen: -1, broken: false };
const view = { ...FRESH, focus: 0, only: '', frame: 0, then: 0, drawn: -1, dirty: true, spoken: 0, said: '' };

// ---- reading ---------------------------------------------------------------------------------------------------------

function read() {
  const text = String(props.value || '');
  const first = view.text === '';
  if (!text.startsWith(view.text)) Object.assign(view, FRESH, { panels: [] });
  const lines = (view.part + text.slice(view.text.length)).split('\n');
  view.part = lines.pop();
  view.text = text;
  for (const line of lines) if (line) takeLine(line);
  if (first && view.run && !live()) recorded();
  redraw();
}

function takeLine(line) {
  try {
    take(JSON.parse(line));
  } catch (error) {
    view.broken = true;
    console.error('viewer: a line could not be read', error);
  }
}

function take(e) {
  if (e.type === 'run') return takeRun(e);
  const p = view.panels[e.panel];
  if (!p) return;
  if (e.type === 'header') takeHeader(p, e);
  if (e.type === 'note') p.note = String(e.text);
  if (e.type === 'round') takeRound(p, e);
  if (e.type === 'picture') takePicture(p, e);
  if (e.type === 'footer') p.footer = { ...e.totals, ...e };
}

function takeRun(e) {
  const title = (t) => (typeof t === 'string' ? t : t.title || t.name || '');
  const panels = e.panels.slice(0, slots.length).map((t) => (
    { title: title(t), header: null, footer: null, note: '', order: [], rank: [], rounds: [], sums: [], cells: [], pictures: [], peaks: {}, longest: 1 }));
  Object.assign(view, { run: e, panels, clock: 0, follow: true, playing: false, hover: -1, chosen: -1 });
  if (e.recorded) recorded();
}

function recorded() { // a whole run is here at once: play it, or, where motion is not wanted, rest at its end
  view.run.recorded = true;
  Object.assign(view, { follow: calm, playing: !calm, clock: 0, then: performance.now() });
}

function takeHeader(p, e) { // order[k]: the cell generated as number k; rank is its inverse
  p.header = e;
  p.note = ''; // what it was waiting for
  p.order = e.order && e.order.length ? e.order : Array.from({ length: e.cells }, (_, k) => k);
  p.order.forEach((pos, k) => { p.rank[pos] = k; });
}

function takeRound(p, e) {
  const tests = e.tests || {}, tested = tests.pos || [], columns = e.cells;
  const value = (key, i) => (columns[key] ? columns[key][i] : null);
  columns.pos.forEach((pos, i) => {
    const logp = value('logp', i), j = tested.indexOf(pos);
    const cell = {
      pos, round: e.round, order: e.start + i, token: value('token', i), latent: value('latent', i), outcome: columns.outcome[i], H: value('H', i), drift: value('drift', i),
      age: value('age', i), surprise: logp === null ? null : -logp,
    };
    if (j >= 0) cell.test = Object.fromEntries(Object.keys(tests).map((k) => [k, tests[k][j]]));
    p.cells[pos] = cell;
    for (const key in layers) p.peaks[key] = Math.max(p.peaks[key] || 0, Math.abs(layerValue(cell, key) || 0));
  });
  p.longest = Math.max(p.longest, e.committed);
  p.sums.push(addUp(p.sums[p.sums.length - 1], e));
  p.rounds.push(e);
}

function addUp(before, e) { // totals after a round; a quantity that was not recorded stays null
  const sum = { target_forwards: e.target_forwards, target_rows: e.target_rows, draft_forwards: e.draft_forwards, head_steps: e.head_steps, calibration: e.calibration };
  const column = (key) => (e.tests && e.tests[key] ? e.tests[key].reduce((a, b) => a + Number(b), 0) : 0);
  const drift = e.cells.drift ? e.cells.drift.reduce((a, b) => a + b, 0) : null;
  const relaxed = e.relaxed === undefined ? e.cells.outcome.filter((o) => o === 'relaxed').length : e.relaxed;
  const parts = { committed: e.committed, examined: e.examined, accepted: e.accepted, relaxed, drift, fallbacks: column('fallback'), trials: column('trials'), distance: column('distance') };
  for (const key of ['draft', 'target', 'verify', 'record']) parts['seconds_' + key] = e.seconds ? e.seconds[key] : null;
  for (const key in parts) {
    const known = typeof parts[key] === 'number' && (!before || before[key] !== null);
    sum[key] = known ? (before ? before[key] : 0) + parts[key] : null;
  }
  return sum;
}

function takePicture(p, e) {
  if (!/^data:image\/(webp|png);base64,[A-Za-z0-9+/=]+$/.test(e.data)) return;
  const image = new Image();
  image.onload = redraw;
  image.src = e.data;
  p.pictures.push({ cells: e.cells, round: e.round, image });
}

// ---- state at the clock -----------------------------------------------------------------------------------------------

const head = () => Math.max(0, ...view.panels.map((p) => p.rounds.length));
const step = () => Math.floor(view.clock);
const live = () => Boolean(view.run) && !view.run.recorded && view.panels.some((p) => !p.footer);
const done = (p) => Math.min(step(), p.rounds.length); // rounds of this panel that have happened
const over = (p) => Boolean(p.footer) && done(p) >= p.rounds.length;
const settled = (p) => (done(p) ? p.sums[done(p) - 1].committed : 0);
const selected = () => (view.hover >= 0 ? view.hover : view.chosen);
const colour = (outcome) => outcomes[outcome][root.dataset.theme];

function layerValue(cell, key) {
  const value = layers[key].from === 'cells' ? cell[key] : cell.test && cell.test[key];
  const plain = typeof value === 'boolean' ? Number(value) : value;
  return typeof plain === 'number' && isFinite(plain) ? plain : null;
}

const continuous = (p) => p.header.kind === 'continuous';
const layerOf = (p) => $(continuous(p) ? '.layer-latent' : '.layer').value;
const spot = (p, pos) => ($('.by-order').checked ? p.rank[pos] : pos); // where a cell is drawn
const cellIn = (p, place) => ($('.by-order').checked ? p.order[place] : place);

function layerTop(key) { // one scale for all panels and all times, so that colours can be compared
  return layers[key].top || Math.max(0, ...view.panels.map((p) => p.peaks[key] || 0));
}

function shortName(p) { // SJD; numbered where two panels run the same method
  const name = (q) => (q.header ? q.header.method.toUpperCase().replace('CSPD', 'CSpD') : q.title);
  const same = view.panels.filter((q) => name(q) === name(p));
  return name(p) + (same.length > 1 ? ' ' + (same.indexOf(p) + 1) : '');
}

// ---- drawing ----------------------------------------------------------------------------------------------------------

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
  const g = fit($('.strip', slot)), { width, height } = g.canvas, w = width / Math.max(1, head());
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

// ---- words ------------------------------------------------------------------------------------------------------------

function write(node, text) { // only when it changes: cheap, and quiet for screen readers
  if (node.textContent !== text) node.textContent = text;
}

function number(v, digits = 2) { // "n/a" is never zero, and small is not zero either
  if (typeof v !== 'number' || !isFinite(v)) return 'n/a';
  if (v === 0 || Math.abs(v) < 1e-12) return '0'; // rounding noise of sums that are zero
  return (Math.abs(v) < 0.5 * 10 ** -digits ? v.toExponential(1) : v.toFixed(digits)).replaceAll('-', '−');
}

const ORIGINS = { previous: 'previous round', fill: 'uniform fill', copy: 'copy of a neighbour', model: 'draft model' };

function place(p, pos) {
  const columns = p.header.grid[1];
  return 'row ' + Math.floor(pos / columns) + ', column ' + (pos % columns);
}

const STEPS = { // what a rule makes of p/q, in words with the stored numbers
  amplify: (t, k) => ' × ' + k.factor,
  addition: (t, k) => ' + ' + k.bonus,
  cool: (t) => ' × ' + number(t.w) + ' at this depth',
  gsd: (t) => '; its group of ' + t.group_size + ': p(C)/q(C) = ' + number(t.p_group, 4) + '/' + number(t.q_group, 4),
  lantern: (t) => '; ' + t.lenders + ' neighbours lend ' + number(t.lent, 4) + ': (p + m)/q',
};
STEPS['lantern++'] = STEPS.lantern;

function verdict(t, token, { rule, knobs }) { // the arithmetic of one decision
  const ratio = t.q > 0 ? t.p / t.q : null;
  if (rule === 'block') {
    const end = t.kept ? 'kept, as the block ends here or later' : 'behind the end of the block, and ' + token + ' drawn in its place';
    return 'p/q = ' + number(ratio) + '; h = ' + number(t.b) + ', u = ' + number(t.u, 3) + '. The block ends at its last draft with u < h: ' + end + '.';
  }
  let sum = 'p/q = ' + number(ratio) + (STEPS[rule] ? STEPS[rule](t, knobs) : '');
  if (t.gate === true) sum += ' + bonus ' + number(t.eps) + (t.saturated ? ' (enough alone)' : '');
  if (t.gate === false) sum += ', no bonus (gate closed)';
  sum += ' → b = ' + number(t.b) + '; u = ' + number(t.u, 3) + (t.kept ? ' < b: kept' : ' ≥ b: rejected, and ' + token + ' drawn from the residual law');
  if (t.kept && t.u >= t.b_exact) sum += '. The exact rule would have rejected it: u ≥ ' + number(t.b_exact);
  return sum + '.';
}

function latentVerdict(p, t) { // the same for continuous tokens; densities are logarithms, in nats
  const { factor, inner_temperature: heat } = p.header.knobs;
  let sum = 'ln N(x; μp, σp) − ln N(x; μq, σq) = ' + number(t.log_ratio - t.log_s, 1);
  if (factor !== 'off') sum += ', + ln ' + (factor === 'code' ? '1/S ' : 'S ') + number(t.log_s, 1) + ' = ' + number(t.log_ratio, 1);
  if (heat !== 1) sum += '; with distances over ' + heat + ': ' + number(t.log_ratio_tempered, 1);
  sum += ' → b = ' + number(t.b) + '; u = ' + number(t.u, 3) + (t.kept ? ' < b: kept' : ' ≥ b: rejected');
  if (t.kept && t.u >= t.b_exact) sum += '. The exact rule would have rejected it: u ≥ ' + number(t.b_exact);
  if (t.fallback) sum += '. None of ' + t.trials + ' proposals for the residual was kept, so the target\u2019s own draw stands in';
  else if (!t.kept) sum += ', and proposal ' + t.trials + ' for the residual law was kept';
  return sum + '.';
}

function latentFacts(p, cell) {
  const list = (v) => (v ? v.map((x) => number(x)).join(' ') : 'n/a');
  const spread = (v) => (Math.max(...v) < 1.02 * Math.min(...v) ? 'about ' + v[0].toPrecision(2) + ' each' : v.map((x) => x.toPrecision(2)).join(' '));
  const t = cell.test, end = ['token', list(cell.latent), 'wide'];
  const order = ['generated as number', (cell.order + 1) + ' of ' + p.header.cells];
  if (!t) return [order, end];
  return [
    order, ['distance of means', number(t.distance, 1) + ' σ'], ['ln S', p.header.knobs.factor === 'off' ? 'not used' : number(t.log_s, 1)],
    ['ln ratio, raw', number(t.log_ratio, 1)], ['ln ratio, tempered', number(t.log_ratio_tempered, 1)],
    ['residual trials', t.kept ? 'none' : t.trials], ['means apart, start to end of the chain', list(t.apart), 'wide'], ['draft x', list(t.x), 'wide'], ['μp', list(t.mean_p), 'wide'],
    ['μq', list(t.mean_q), 'wide'], ['σp', spread(t.sigma_p), 'wide'], ['σq', spread(t.sigma_q), 'wide'], end,
  ];
}

function facts(p, cell) {
  if (continuous(p)) return latentFacts(p, cell);
  const t = cell.test, H = ['H(p)', number(cell.H) + ' nats'], drift = ['drift', number(cell.drift, 3)], token = ['token', cell.token];
  if (!t) return [token, ['−log p(token)', number(cell.surprise)], H, drift];
  const age = typeof t.age === 'number' ? t.age + (t.age === 1 ? ' round' : ' rounds') : 'n/a';
  const gate = (t.gate ? 'open: TV < ' : 'closed: TV ≥ ') + (p.header.knobs.delta ?? 'δ');
  return [
    ['draft x', t.x], ['from', ORIGINS[t.origin] || 'n/a'], ['draft age', age],
    ['p(x)', number(t.p, 4)], ['q(x)', number(t.q, 4)], ['rank of x in p', number(t.rank_p, 0)],
    H, ['TV(p, q)', number(t.tv)], ['gate', typeof t.gate === 'boolean' ? gate : 'n/a'], drift, token,
  ];
}

function waiting(p, pos) { // a draft of the last round at a cell that is not settled
  const r = p.rounds[done(p) - 1], i = r ? p.rank[pos] - r.start : -1;
  if (!r || i < 0 || i >= r.drafted) return '';
  return (continuous(p) ? 'Its draft' : 'Draft ' + (r.window || [])[i]) + ' of round ' + (r.round + 1) + ' was not settled.';
}

function writeCard(slot, p) { // the chosen cell; with none chosen, the last decision before the clock
  const last = selected() < 0, pos = last ? p.order[settled(p) - 1] ?? -1 : selected();
  const card = $('.card', slot), cell = pos >= 0 && p.rank[pos] < settled(p) ? p.cells[pos] : null;
  const stampOf = [view.run.id, pos, last, cell ? 1 : done(p), root.dataset.theme].join();
  if (card.dataset.stamp === stampOf) return;
  card.dataset.stamp = stampOf;
  const t = cell && cell.test, o = cell && outcomes[cell.outcome];
  card.style.borderColor = cell ? colour(cell.outcome) : '';
  const where = (last && cell ? 'last settled: ' : '') + (pos < 0 ? 'Nothing settled yet' : place(p, pos) + (cell ? ': ' + o.label + ', round ' + (cell.round + 1) : ': not settled yet'));
  write($('.where', card), where);
  const meaning = !cell ? waiting(p, pos) : t ? '' : o.meaning;
  write($('.hint', card), meaning + (last ? ' Point at a cell, or walk with the arrow keys, to read another.' : ''));
  write($('.verdict', card), !t ? '' : continuous(p) ? latentVerdict(p, t) : verdict(t, cell.token, p.header));
  writeGauge($('.gauge', card), t);
  $('.facts', card).replaceChildren(...(cell ? facts(p, cell) : []).map(([term, value, look]) => {
    const row = document.createElement('div');
    row.className = look || '';
    row.appendChild(document.createElement('dt')).textContent = term;
    row.appendChild(document.createElement('dd')).textContent = value;
    return row;
  }));
}

function writeGauge(gauge, t) { // the interval from 0 to 1: b of the exact rule, what relaxation adds, and the draw u
  gauge.hidden = !t;
  if (!t) return;
  const strict = Math.min(1, t.b_exact ?? t.b), percent = (v) => 100 * v + '%';
  $('.strict', gauge).style.width = percent(strict);
  $('.extra', gauge).style.left = percent(strict);
  $('.extra', gauge).style.width = percent(Math.max(0, t.b - strict));
  $('.draw', gauge).style.left = percent(t.u);
  gauge.title = 'From 0 to 1. Solid: b of the exact rule. Hatched: what relaxation adds. Line: the draw u.';
}

function writeNumbers(slot, p) {
  const s = done(p) ? p.sums[done(p) - 1] : null;
  const own = s && {
    ...s, acceptance_rate: s.examined ? s.accepted / s.examined : null,
    tokens_per_forward: s.target_forwards ? s.committed / s.target_forwards : null,
    mean_distance: s.distance !== null && s.examined ? s.distance / s.examined : null,
    seconds_model: s.seconds_draft === null || s.seconds_target === null ? null : s.seconds_draft + s.seconds_target,
  };
  for (const dd of slot.querySelectorAll('[data-number]')) write(dd, own ? figure(dd.dataset.number, own, p) : 'n/a');
}

function figure(key, own, p) { // one number as text; a method without drafts has no acceptance at all
  const v = own[key];
  if (p.header.drafter === 'none' && ['examined', 'accepted', 'acceptance_rate', 'relaxed', 'fallbacks', 'trials', 'draft_forwards'].includes(key)) return 'n/a';
  if (key === 'committed') return v + ' of ' + p.header.cells;
  if (key === 'acceptance_rate') return typeof v === 'number' ? (100 * v).toFixed(0) + ' %' : 'n/a';
  if (key.startsWith('seconds')) return number(v, 3) + (typeof v === 'number' ? ' s' : '');
  return number(v, Number.isInteger(v) && key !== 'tokens_per_forward' ? 0 : 2);
}

function statusLine() {
  if (view.broken) return ['error', 'A line of this run could not be read. What was read before it is shown.'];
  if (!view.run) return ['empty', 'Nothing to show yet. Press Generate.'];
  const failed = view.panels.find((p) => p.footer && p.footer.status === 'error');
  if (failed) return ['error', failed.title + ' failed: ' + (failed.footer.message || 'no reason recorded')];
  const words = view.panels.map((p) => {
    if (over(p) && p.footer.status === 'stopped') return shortName(p) + ' stopped at cell ' + settled(p) + ' of ' + p.header.cells;
    return p.header ? shortName(p) + ' ' + settled(p) + ' of ' + p.header.cells + ' cells' : shortName(p) + ' waiting';
  });
  const what = (view.run.recorded ? 'Recorded run, ' : '') + view.run.label + ', seed ' + view.run.seed;
  const when = head() ? 'round ' + step() : 'waiting for the first round';
  const stopped = view.panels.some((p) => p.footer && p.footer.status === 'stopped');
  return [live() ? 'live' : stopped ? 'stopped' : 'done', [what, when, ...words].join(' · ')];
}

function say(words, status) { // the spoken twin of the status line: at ends at once, else every few seconds
  const now = performance.now();
  if (words === view.said || (view.said && status === 'live' && now - view.spoken < 5000) || view.playing) return;
  Object.assign(view, { said: words, spoken: now });
  write($('.spoken'), words);
}

// ---- one frame --------------------------------------------------------------------------------------------------------

function redraw() {
  view.dirty = true;
  schedule();
}

function schedule() {
  if (!view.frame) view.frame = requestAnimationFrame(tick);
}

function tick(now) {
  view.frame = 0;
  if (!root.isConnected) return;
  const passed = Math.min(0.25, Math.max(0, (now - view.then) / 1000)); // a hidden tab does not jump on return
  view.then = now;
  if (view.playing) {
    view.clock = Math.min(head(), view.clock + passed * Number($('.rate').value));
    if (view.clock >= head()) Object.assign(view, { playing: false, follow: live(), dirty: true }); // caught up
  } else if (view.follow) view.clock = head();
  if (view.dirty || view.drawn !== step()) draw();
  if (view.playing) schedule();
}

function draw() {
  Object.assign(view, { dirty: false, drawn: step() });
  root.dataset.theme = document.body.classList.contains('dark') ? 'dark' : 'light';
  root.dataset.panels = view.panels.length;
  drawTransport(); // first: the status decides what is visible
  const ink = inks(), kinds = new Set(view.panels.filter((p) => p.header).map((p) => (continuous(p) ? 'continuous' : 'discrete')));
  $('.for-discrete').hidden = kinds.size > 0 && !kinds.has('discrete');
  for (const node of root.querySelectorAll('.for-continuous')) node.hidden = !kinds.has('continuous');
  slots.forEach((slot, i) => {
    const p = view.panels[i];
    slot.hidden = !p;
    if (p) root.dataset['cells' + i] = settled(p);
    else delete root.dataset['cells' + i];
    if (p) drawPanel(slot, p, ink);
  });
  if ($('.table').open && !view.playing && !live()) writeTable();
}

function drawPanel(slot, p, ink) {
  const h = p.header;
  write($('.title', slot), p.title);
  slot.classList.toggle('waiting', !h);
  write($('.rule', slot), h ? ruleLine(h) : p.note || 'Waiting for the first round.');
  if (h) $('.rule', slot).title = Object.entries({ ...h.knobs, ...h.sampling }).map((pair) => pair.join(': ')).join('\n');
  if (!h) return;
  const key = layerOf(p), layer = layers[key], unit = layer.unit ? ', ' + layer.unit : '', signed = layer.scale === 'signed';
  slot.dataset.kind = h.kind || 'discrete';
  write($('.note', slot), over(p) ? p.note : '');
  const unfinished = over(p) && p.footer.status !== 'done';
  slot.classList.toggle('partial', unfinished);
  write($('.caption', slot), unfinished ? 'partial picture, ' + p.footer.status : 'picture and outcomes');
  write($('.layer-name', slot), layer.label + unit + (layer.scale === 'linear' ? '' : ' (log)'));
  const top = number(layerTop(key), Number.isInteger(layerTop(key)) ? 0 : layerTop(key) < 100 ? 2 : 0);
  write($('.high', slot), top);
  write($('.low', slot), signed ? '−' + top : '0');
  write($('.strip-name', slot), 'cells settled by each round, at most ' + p.longest);
  $('.second-map', slot).title = layer.meaning;
  writeNumbers(slot, p);
  writeCard(slot, p);
  if ($('.map', slot).clientWidth < h.grid[1]) return; // not on screen, as in a closed tab; drawn when it gets its size
  drawPicture(slot, p, ink);
  drawLayer(slot, p, ink, key);
  drawRamp($('.ramp', slot), signed ? SIGNED : RAMP);
  drawStrip(slot, p);
}

function ruleLine(h) {
  const word = (v) => (typeof v === 'boolean' ? (v ? 'on' : 'off') : v); // a preset stands for its switches; all are in the tooltip
  const knobs = Object.entries(h.knobs || {}).map(([k, v]) => k.replaceAll('_', ' ') + ' ' + word(v));
  if (h.kind === 'continuous' && h.drafter !== 'none') knobs.splice(0, knobs.length, 'γ ' + h.knobs.gamma, 'pre-fill ' + h.knobs.prefill);
  return [shortName(view.panels.find((p) => p.header === h)), h.preset && h.preset !== 'exact' ? 'preset ' + h.preset : '', h.lossless ? 'exact' : 'not exact',
    h.drafter === 'none' ? '' : h.formula || '', ...knobs].filter(Boolean).join(' · ');
}

function drawTransport() {
  const [status, words] = statusLine(), end = head(), waits = live();
  $('.time').max = end;
  $('.time').value = step();
  write($('.clock'), 'round ' + step() + ' of ' + end);
  write($('.play'), view.playing || (view.follow && waits) ? 'Pause' : 'Play');
  $('.head-button').hidden = !waits || view.follow;
  for (const button of root.querySelectorAll('.transport button, [data-jump]')) button.disabled = !end;
  Object.assign(root.dataset, { status, round: step() });
  write($('.status'), words);
  say(words, status);
}

function writeTable() {
  const p = view.panels[view.focus] || view.panels[0], body = $('tbody');
  if (!p || !p.header) return;
  const id = [view.run.id, view.focus, settled(p), view.chosen].join();
  if (body.dataset.stamp === id) return;
  body.dataset.stamp = id;
  write($('.which'), p.title + ', after round ' + step() + '. Choose a cell on another map to see its panel.');
  const columns = COLUMNS[continuous(p) ? 'continuous' : 'discrete'];
  $('thead tr').replaceChildren(...['row', 'column', 'outcome', ...Object.keys(columns)].map((name) => tableCell('th', name)));
  body.replaceChildren(...p.order.slice(0, settled(p)).map((pos) => tableRow(p, p.cells[pos], Object.values(columns))));
}

const COLUMNS = { // heading → text, from the cell and its test
  discrete: {
    H: (c) => number(c.H), 'p(x)': (c, t) => number(t.p, 4), 'q(x)': (c, t) => number(t.q, 4), TV: (c, t) => number(t.tv),
    u: (c, t) => number(t.u, 3), b: (c, t) => number(t.b), drift: (c) => number(c.drift, 3),
  },
  continuous: {
    order: (c) => c.order + 1, 'distance, σ': (c, t) => number(t.distance, 1), 'ln S': (c, t) => number(t.log_s, 1),
    'ln ratio': (c, t) => number(t.log_ratio, 1), tempered: (c, t) => number(t.log_ratio_tempered, 1), u: (c, t) => number(t.u, 3),
    b: (c, t) => number(t.b), trials: (c, t) => number(t.trials, 0), fallback: (c, t) => (t.fallback ? 'yes' : t.kept === false ? 'no' : 'n/a'),
  },
};

function tableCell(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

function tableRow(p, c, columns) {
  const row = document.createElement('tr'), wide = p.header.grid[1];
  row.className = c.pos === view.chosen ? 'chosen' : '';
  row.append(...[Math.floor(c.pos / wide), c.pos % wide, outcomes[c.outcome].label, ...columns.map((f) => f(c, c.test || {}))].map((v) => tableCell('td', v)));
  return row;
}

// ---- hands ------------------------------------------------------------------------------------------------------------

function cellAt(canvas, event, p) {
  const box = canvas.getBoundingClientRect(), [rows, columns] = p.header.grid;
  const c = Math.floor(((event.clientX - box.left) / box.width) * columns);
  const r = Math.floor(((event.clientY - box.top) / box.height) * rows);
  return r >= 0 && r < rows && c >= 0 && c < columns ? cellIn(p, r * columns + c) : -1;
}

function choose(pos, panel) {
  const p = view.panels[panel], columns = p.header.grid[1];
  if (view.chosen === pos) pos = -1; // a second click lets go
  Object.assign(view, { chosen: pos, focus: panel, hover: -1 });
  if (pos >= 0) trigger('cell', { panel, pos, row: Math.floor(pos / columns), col: pos % columns });
  redraw();
}

function speakCard(panel) { // what the arrow keys found
  const card = $('.card', slots[panel]);
  writeCard(slots[panel], view.panels[panel]);
  write($('.spoken'), $('.where', card).textContent + '. ' + $('.verdict', card).textContent);
}

function goTo(round) {
  view.clock = Math.max(0, Math.min(head(), round));
  Object.assign(view, { playing: false, follow: live() && view.clock >= head() });
  redraw();
}

function jump(outcome) { // to the next round, in any panel, that has such a cell, and to that cell
  for (let i = step(); i < head(); i++) {
    for (const { rounds } of view.panels) {
      const at = rounds[i] ? rounds[i].cells.outcome.indexOf(outcome) : -1;
      if (at < 0) continue;
      view.chosen = rounds[i].cells.pos[at];
      return goTo(i + 1);
    }
  }
  goTo(head());
}

function play() {
  const runs = view.playing || (view.follow && live());
  if (!runs && view.clock >= head() && !live()) view.clock = 0;
  Object.assign(view, { playing: !runs, follow: false, then: performance.now() });
  redraw();
}

function walk(event, i) {
  const p = view.panels[i], columns = p.header.grid[1];
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (event.key === 'Escape') choose(-1, i);
  if (!by) return;
  event.preventDefault();
  const to = view.chosen < 0 ? 0 : spot(p, view.chosen) + by;
  if (to < 0 || to >= p.header.cells) return;
  choose(cellIn(p, to), i);
  speakCard(i);
}

slots.forEach((slot, i) => {
  const ready = () => view.panels[i] && view.panels[i].header;
  for (const map of slot.querySelectorAll('.map')) {
    map.addEventListener('pointermove', (e) => {
      const pos = ready() && e.pointerType === 'mouse' ? cellAt(map, e, view.panels[i]) : -1;
      if (pos !== view.hover) { view.hover = pos; redraw(); }
    });
    map.addEventListener('pointerleave', () => { view.hover = -1; redraw(); });
    map.addEventListener('click', (e) => { if (ready()) choose(cellAt(map, e, view.panels[i]), i); });
    map.addEventListener('keydown', (e) => { if (ready()) walk(e, i); });
  }
  $('.strip', slot).addEventListener('click', (e) => {
    const box = e.target.getBoundingClientRect();
    goTo(Math.floor(((e.clientX - box.left) / box.width) * head()) + 1);
  });
});

$('.play').addEventListener('click', play);
$('.back').addEventListener('click', () => goTo(step() - 1));
$('.forth').addEventListener('click', () => goTo(step() + 1));
$('.time').addEventListener('input', (e) => goTo(Number(e.target.value)));
$('.head-button').addEventListener('click', () => goTo(head()));
for (const name of ['.opacity', '.layer', '.layer-latent', '.by-order']) $(name).addEventListener('input', redraw);
for (const button of root.querySelectorAll('[data-jump]')) button.addEventListener('click', () => jump(button.dataset.jump));
for (const name of ['.table', '.definitions']) $(name).addEventListener('toggle', redraw);

const keys = [...root.querySelectorAll('.key [data-outcome]')];
for (const button of keys) {
  button.addEventListener('click', () => {
    view.only = view.only === button.dataset.outcome ? '' : button.dataset.outcome;
    for (const other of keys) other.setAttribute('aria-pressed', String(other.dataset.outcome === view.only));
    redraw();
  });
}

function drawLegend() {
  root.dataset.theme = document.body.classList.contains('dark') ? 'dark' : 'light';
  for (const canvas of root.querySelectorAll('.glyph')) {
    const g = canvas.getContext('2d');
    g.clearRect(0, 0, 40, 40);
    g.drawImage(stamp(canvas.dataset.outcome, 40, 40), 0, 0);
  }
}

element.__viewer = Object.freeze({ // read-only, for tests and the curious
  get round() { return step(); },
  get head() { return head(); },
  get status() { return root.dataset.status; },
  get selected() { return selected(); },
  get playing() { return view.playing; },
  get panels() { return view.panels.map((p) => ({ title: p.title, cells: settled(p), rounds: p.rounds.length, pictures: p.pictures.length, status: p.footer ? p.footer.status : 'live' })); },
});

new ResizeObserver(redraw).observe(root);
new MutationObserver(() => { drawLegend(); redraw(); }).observe(document.body, { attributes: true, attributeFilter: ['class'] });
watch('value', read);
drawLegend();
read();
