// The live map: reads a growing string of JSON lines, keeps every event, and draws the state at one round of one clock.
// Runs once, when the component is mounted, with `element`, `trigger`, `props` and `watch`. Text is written with
// textContent only. All view state (time, selection, layer) lives here; the server only appends.

const root = element.querySelector('.csd-viewer');
const $ = (selector, from = root) => from.querySelector(selector);
const palette = props.palette;
const slots = [...root.querySelectorAll('.panel')];
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const view = { text: '', run: null, panels: [], t: 0, playing: false, follow: false, hover: -1, chosen: -1, focus: 0, frame: 0, last: 0, part: '' };

// ---- reading ---------------------------------------------------------------------------------------------------------

function read() {
  const text = String(props.value || '');
  if (!text.startsWith(view.text) || text.length < view.text.length) {
    Object.assign(view, { text: '', part: '', run: null, panels: [], t: 0, playing: false, hover: -1, chosen: -1 });
  }
  const lines = (view.part + text.slice(view.text.length)).split('\n');
  view.part = lines.pop();
  view.text = text;
  for (const line of lines) if (line) take(JSON.parse(line));
  if (view.follow && !view.playing) view.t = head();
  schedule();
}

function take(e) {
  if (e.type === 'run') {
    view.run = e;
    view.panels = e.panels.map((title) => ({ title, rounds: [], pictures: [], cells: [], sums: [], header: null, footer: null }));
    view.follow = !e.recorded || calm;
    view.playing = e.recorded && !calm;
    view.last = performance.now();
    return;
  }
  const p = view.panels[e.panel];
  if (!p) return;
  if (e.type === 'header') p.header = e;
  if (e.type === 'round') takeRound(p, e);
  if (e.type === 'picture') takePicture(p, e);
  if (e.type === 'footer') p.footer = e;
}

function takeRound(p, e) {
  const tests = e.tests.pos || [];
  e.cells.pos.forEach((pos, i) => {
    const cell = { pos, round: e.round, token: e.cells.token[i], outcome: e.cells.outcome[i] };
    for (const key of ['H', 'drift', 'age']) cell[key] = e.cells[key] ? e.cells[key][i] : null;
    cell.surprise = e.cells.logp && e.cells.logp[i] !== null ? -e.cells.logp[i] : null;
    const j = tests.indexOf(pos);
    if (j >= 0) cell.test = Object.fromEntries(Object.keys(e.tests).map((k) => [k, e.tests[k][j]]));
    p.cells[pos] = cell;
  });
  const before = p.sums[p.sums.length - 1];
  const add = (key, value) => (before ? before[key] : 0) + value;
  const s = e.seconds;
  const drift = e.cells.drift ? e.cells.drift.reduce((a, b) => a + b, 0) : NaN;
  p.sums.push({
    committed: add('committed', e.committed), examined: add('examined', e.examined), accepted: add('accepted', e.accepted),
    relaxed: add('relaxed', e.relaxed), drift: add('drift', drift), seconds_draft: add('seconds_draft', s.draft),
    seconds_target: add('seconds_target', s.target), seconds_verify: add('seconds_verify', s.verify),
    seconds_record: add('seconds_record', s.record), target_forwards: e.target_forwards, target_rows: e.target_rows,
    draft_forwards: e.draft_forwards,
  });
  p.rounds.push(e);
}

function takePicture(p, e) {
  if (!/^data:image\/(webp|png);base64,[A-Za-z0-9+/=]+$/.test(e.data)) return;
  const image = new Image();
  image.onload = schedule;
  image.src = e.data;
  p.pictures.push({ cells: e.cells, round: e.round, image });
}

// ---- state at the clock -----------------------------------------------------------------------------------------------

const head = () => Math.max(0, ...view.panels.map((p) => p.rounds.length));
const done = (p) => Math.min(Math.floor(view.t), p.rounds.length); // rounds of this panel that have happened
const settled = (p) => (done(p) ? p.sums[done(p) - 1].committed : 0);
const live = () => view.run && !view.run.recorded && view.panels.some((p) => !p.footer);
const selected = () => (view.hover >= 0 ? view.hover : view.chosen);

function layerValue(cell, key) {
  const from = palette.layers[key].from;
  const value = from === 'cells' ? cell[key] : cell.test && cell.test[key];
  return typeof value === 'number' && isFinite(value) ? value : null;
}

function layerRange(key) {
  let high = 0;
  for (const p of view.panels) for (const c of p.cells) if (c) high = Math.max(high, layerValue(c, key) || 0);
  return key === 'tv' || key === 'b' ? 1 : high;
}

// ---- drawing ----------------------------------------------------------------------------------------------------------

const RAMP = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fee838']; // cividis

function ramp(x) {
  const at = Math.max(0, Math.min(1, x)) * (RAMP.length - 1);
  const i = Math.min(RAMP.length - 2, Math.floor(at));
  const [a, b] = [RAMP[i], RAMP[i + 1]].map((h) => [1, 3, 5].map((k) => parseInt(h.slice(k, k + 2), 16)));
  return 'rgb(' + a.map((v, k) => Math.round(v + (b[k] - v) * (at - i))).join(',') + ')';
}

function fit(canvas) {
  const size = Math.max(16, Math.round(canvas.clientWidth * devicePixelRatio));
  if (canvas.width !== size || canvas.height !== size) canvas.width = canvas.height = size;
  return canvas.getContext('2d');
}

function glyph(g, shape, x, y, r, colour, halo) {
  const path = new Path2D();
  if (shape === 'dot') path.arc(x, y, r * 0.55, 0, 7);
  if (shape === 'square') path.rect(x - r * 0.6, y - r * 0.6, r * 1.2, r * 1.2);
  if (shape === 'bar') path.rect(x - r * 0.7, y - r * 0.22, r * 1.4, r * 0.44);
  if (shape === 'triangle') { path.moveTo(x, y - r); path.lineTo(x + r * 0.95, y + r * 0.75); path.lineTo(x - r * 0.95, y + r * 0.75); path.closePath(); }
  const lines = new Path2D();
  if (shape === 'cross') { lines.moveTo(x - r * 0.75, y - r * 0.75); lines.lineTo(x + r * 0.75, y + r * 0.75); lines.moveTo(x + r * 0.75, y - r * 0.75); lines.lineTo(x - r * 0.75, y + r * 0.75); }
  if (shape === 'plus') { lines.moveTo(x - r, y); lines.lineTo(x + r, y); lines.moveTo(x, y - r); lines.lineTo(x, y + r); }
  g.lineWidth = r * 0.3; g.strokeStyle = halo; g.stroke(path);
  g.fillStyle = colour; g.fill(path);
  g.lineCap = 'round';
  g.lineWidth = r * 0.95; g.stroke(lines);
  g.lineWidth = r * 0.55; g.strokeStyle = colour; g.stroke(lines);
}

function hatch(g, x, y, w, colour) {
  g.save(); g.beginPath(); g.rect(x, y, w, w); g.clip();
  g.strokeStyle = colour; g.lineWidth = Math.max(1, w / 16); g.globalAlpha = 0.55; g.beginPath();
  for (let k = -1; k < 2; k += 0.5) { g.moveTo(x + k * w, y + w); g.lineTo(x + (k + 1) * w, y); }
  g.stroke(); g.restore();
}

function colours() {
  const style = getComputedStyle(root);
  return { text: style.color, line: style.getPropertyValue('--line').trim() || '#888', quiet: style.getPropertyValue('--quiet').trim() || '#888' };
}

function frameCells(g, p, w, ink) {
  const [rows, columns] = p.header.grid;
  g.strokeStyle = ink.line; g.lineWidth = 1; g.strokeRect(0.5, 0.5, columns * w - 1, rows * w - 1);
  const r = p.rounds[done(p) - 1];
  const waiting = done(p) < p.rounds.length || !p.footer; // drafts of a finished picture are of no interest
  if (r && waiting) { // the drafts of the last round, dashed
    g.save(); g.strokeStyle = ink.quiet; g.setLineDash([w / 5, w / 8]); g.lineWidth = Math.max(1, w / 16);
    for (let i = 0; i < r.drafted; i++) { const pos = r.start + i; g.strokeRect((pos % columns) * w + 1.5, Math.floor(pos / columns) * w + 1.5, w - 3, w - 3); }
    g.restore();
  }
  if (r) { // what the last round settled, boxed
    g.strokeStyle = ink.text; g.lineWidth = Math.max(1.5, w / 12);
    for (const pos of r.cells.pos) g.strokeRect((pos % columns) * w + 1, Math.floor(pos / columns) * w + 1, w - 2, w - 2);
  }
  const s = selected();
  if (s >= 0 && s < rows * columns) {
    const x = (s % columns) * w, y = Math.floor(s / columns) * w;
    g.lineWidth = Math.max(3, w / 5); g.strokeStyle = '#fff'; g.strokeRect(x, y, w, w);
    g.lineWidth = Math.max(1.5, w / 10); g.strokeStyle = '#111'; g.strokeRect(x, y, w, w);
  }
}

function drawPicture(slot, p, ink) {
  const g = fit($('.picture', slot)), size = g.canvas.width, columns = p.header.grid[1], w = size / columns, n = settled(p);
  g.clearRect(0, 0, size, size);
  let known = null;
  for (const q of p.pictures) if (q.round < done(p) && q.image.complete) known = q;
  if (known) { g.imageSmoothingEnabled = false; g.drawImage(known.image, 0, 0, size, size); }
  const alpha = $('.opacity').value / 100;
  for (let pos = 0; pos < p.header.cells; pos++) {
    const x = (pos % columns) * w, y = Math.floor(pos / columns) * w, cell = p.cells[pos];
    if (pos >= n) { g.clearRect(x, y, w + 1, w + 1); continue; }
    const o = palette.outcomes[cell.outcome];
    if (!known || pos >= known.cells) { g.clearRect(x, y, w + 1, w + 1); g.globalAlpha = 0.25; g.fillStyle = ink.quiet; g.fillRect(x, y, w, w); }
    if (!alpha) { g.globalAlpha = 1; continue; }
    g.globalAlpha = alpha * 0.55; g.fillStyle = o.colour; g.fillRect(x, y, w, w);
    g.globalAlpha = Math.min(1, alpha * 1.6);
    glyph(g, o.shape, x + w / 2, y + w / 2, w * 0.3, o.colour, 'rgba(255,255,255,.9)');
    g.globalAlpha = 1;
  }
  g.globalAlpha = 1;
  frameCells(g, p, w, ink);
}

function drawLayer(slot, p, ink, key, high) {
  const g = fit($('.layer-map', slot)), size = g.canvas.width, columns = p.header.grid[1], w = size / columns, n = settled(p);
  g.clearRect(0, 0, size, size);
  for (let pos = 0; pos < n; pos++) {
    const x = (pos % columns) * w, y = Math.floor(pos / columns) * w, value = layerValue(p.cells[pos], key);
    if (value === null) { hatch(g, x, y, w, ink.quiet); continue; }
    g.fillStyle = ramp(high > 0 ? value / high : 0);
    g.fillRect(x, y, Math.ceil(w), Math.ceil(w));
  }
  frameCells(g, p, w, ink);
}

// ---- words ------------------------------------------------------------------------------------------------------------

const short = (v, digits = 2) => (v === null || v === undefined ? 'n/a' : Math.abs(v) >= 1e-9 && Math.abs(v) < 0.001 ? v.toExponential(1) : v.toFixed(Math.abs(v) < 1e-9 ? 0 : digits));

function reason(p, pos) {
  if (pos < 0) return 'Point at a cell, or choose one with the arrow keys, to read its decision.';
  const columns = p.header.grid[1], place = 'row ' + Math.floor(pos / columns) + ', column ' + (pos % columns);
  const cell = pos < settled(p) ? p.cells[pos] : null;
  if (!cell) return place + ': not settled yet.';
  const o = palette.outcomes[cell.outcome], t = cell.test;
  const opening = place + ': ' + o.label + ' in round ' + cell.round + '. Token ' + cell.token + ', H(p) = ' + short(cell.H) + ' nats.';
  if (!t) return opening + '\n' + o.meaning;
  const ratio = t.p / t.q;
  let sum = 'p/q = ' + short(t.p, 4) + ' / ' + short(t.q, 4) + ' = ' + short(ratio);
  if (t.eps !== undefined) sum += t.gate ? ', plus bonus ' + short(t.eps) + ' (TV ' + short(t.tv) + ' < δ)' : ', no bonus: TV ' + short(t.tv) + ' ≥ δ';
  sum += ', so b = ' + short(t.b) + '.';
  const verdict = 'u = ' + short(t.u, 3) + (t.kept ? ' < b: kept.' : ' ≥ b: rejected.');
  const strict = t.kept && t.u >= t.b_exact ? ' The exact rule would have rejected it (u ≥ ' + short(t.b_exact) + ').' : '';
  const other = t.kept ? '' : ' Draft ' + t.x + ' gave way to token ' + cell.token + '.';
  return opening + '\n' + sum + '\n' + verdict + strict + other + '\nTV(p, q) = ' + short(t.tv) + ', drift ' + short(t.drift, 3) + ', rank of the draft in p: ' + t.rank_p + '.';
}

function writeNumbers(slot, p) {
  const s = done(p) ? p.sums[done(p) - 1] : null;
  const own = s && { ...s, acceptance_rate: s.examined ? s.accepted / s.examined : null, tokens_per_forward: s.committed / s.target_forwards, seconds_model: s.seconds_draft + s.seconds_target };
  for (const dd of slot.querySelectorAll('[data-number]')) {
    const key = dd.dataset.number, v = own ? own[key] : null;
    let text = v === null || v === undefined || Number.isNaN(v) ? 'n/a' : String(v);
    if (own && key === 'committed') text = v + ' of ' + p.header.cells;
    else if (own && key === 'acceptance_rate' && v !== null) text = (100 * v).toFixed(0) + ' %';
    else if (own && ['tokens_per_forward', 'drift'].includes(key) && !Number.isNaN(v)) text = v.toFixed(2);
    else if (own && key.startsWith('seconds')) text = v.toFixed(3) + ' s';
    if (own && !own.examined && ['examined', 'accepted', 'acceptance_rate', 'relaxed'].includes(key)) text = 'n/a';
    dd.textContent = text;
  }
}

function statusLine() {
  if (!view.run) return ['empty', 'Nothing to show yet. Press Generate.'];
  const failed = view.panels.find((p) => p.footer && p.footer.status === 'error');
  if (failed) return ['error', failed.title + ' failed: ' + (failed.footer.message || 'no reason recorded')];
  const words = view.panels.map((p) => {
    const end = p.footer && done(p) >= p.rounds.length;
    if (end && p.footer.status === 'stopped') return p.title + ': stopped at cell ' + p.footer.committed + ' of ' + p.footer.cells;
    return p.title + ': ' + settled(p) + ' of ' + (p.header ? p.header.cells : '?') + ' cells';
  });
  const stopped = view.panels.some((p) => p.footer && p.footer.status === 'stopped');
  const what = (view.run.recorded ? 'Recorded run, ' : '') + view.run.label + ', seed ' + view.run.seed + '. ';
  return [live() ? 'live' : stopped ? 'stopped' : 'done', what + words.join(' · ')];
}

// ---- one frame --------------------------------------------------------------------------------------------------------

function schedule() {
  if (!view.frame) view.frame = requestAnimationFrame(draw);
}

function advance() {
  const now = performance.now();
  if (view.playing) {
    view.t = Math.min(head(), view.t + ((now - view.last) / 1000) * Number($('.rate').value));
    if (view.t >= head() && !live()) view.playing = false;
    schedule();
  }
  view.last = now;
}

function draw() {
  view.frame = 0;
  if (!root.isConnected) return;
  advance();
  const ink = colours(), key = $('.layer').value, layer = palette.layers[key], high = layerRange(key);
  slots.forEach((slot, i) => {
    const p = view.panels[i];
    slot.hidden = !p;
    if (!p || !p.header) return;
    $('.title', slot).textContent = p.title;
    const knobs = Object.entries(p.header.knobs).map(([k, v]) => k + ' ' + v).join(', ');
    $('.rule', slot).textContent = (p.header.lossless ? 'Exact. ' : 'Not exact. ') + (p.header.drafter === 'none' ? '' : p.header.formula + (knobs ? '; ' + knobs : ''));
    const partial = p.footer && p.footer.status !== 'done' && done(p) >= p.rounds.length;
    $('.picture', slot).nextElementSibling.textContent = partial ? 'partial picture, ' + p.footer.status : 'picture and outcomes';
    $('.layer-name', slot).textContent = layer.label + (layer.unit ? ', ' + layer.unit : '');
    drawPicture(slot, p, ink);
    drawLayer(slot, p, ink, key, high);
    writeNumbers(slot, p);
    $('.card', slot).textContent = reason(p, selected());
    root.dataset['cells' + i] = settled(p);
  });
  drawBar(layer, high);
}

function drawBar(layer, high) {
  $('.time').max = head();
  $('.time').value = Math.floor(view.t);
  $('.clock').textContent = 'round ' + Math.floor(view.t) + ' of ' + head();
  $('.play').textContent = view.playing ? 'Pause' : 'Play';
  $('.high').textContent = short(high, high >= 10 ? 0 : 2);
  $('.unit').textContent = layer.unit;
  $('.scale').title = layer.meaning;
  const g = $('.ramp').getContext('2d');
  for (let x = 0; x < 240; x++) { g.fillStyle = ramp(x / 239); g.fillRect(x, 0, 1, 12); }
  const [status, words] = statusLine();
  root.dataset.status = status;
  root.dataset.round = Math.floor(view.t);
  if ($('.status').textContent !== words) $('.status').textContent = words;
  if ($('.table').open && !view.playing && !live()) writeTable();
}

function writeTable() {
  const p = view.panels[view.focus] || view.panels[0];
  if (!p || !p.header) return;
  const stamp = [view.run.id, view.focus, settled(p), view.chosen].join();
  const body = $('tbody');
  if (body.dataset.stamp === stamp) return;
  body.dataset.stamp = stamp;
  $('.which').textContent = p.title + '. Click a map to choose the panel.';
  const columns = p.header.grid[1];
  body.replaceChildren(...p.cells.slice(0, settled(p)).map((c) => {
    const t = c.test || {}, row = document.createElement('tr');
    row.className = c.pos === view.chosen ? 'chosen' : '';
    const values = [Math.floor(c.pos / columns), c.pos % columns, palette.outcomes[c.outcome].label, short(c.H), short(t.p, 4), short(t.q, 4), short(t.tv), short(t.u, 3), short(t.b), short(c.drift, 3)];
    for (const v of values) row.appendChild(document.createElement('td')).textContent = v;
    return row;
  }));
}

// ---- hands ------------------------------------------------------------------------------------------------------------

function cellAt(canvas, event, p) {
  const box = canvas.getBoundingClientRect(), [rows, columns] = p.header.grid;
  const c = Math.floor(((event.clientX - box.left) / box.width) * columns), r = Math.floor(((event.clientY - box.top) / box.height) * rows);
  return r >= 0 && r < rows && c >= 0 && c < columns ? r * columns + c : -1;
}

function choose(pos, panel) {
  const p = view.panels[panel];
  Object.assign(view, { chosen: pos, focus: panel, hover: -1 });
  if (pos >= 0) trigger('cell', { panel, pos, row: Math.floor(pos / p.header.grid[1]), col: pos % p.header.grid[1] });
  schedule();
}

function goTo(t) {
  view.playing = false;
  view.t = Math.max(0, Math.min(head(), t));
  view.follow = live() && view.t >= head();
  schedule();
}

slots.forEach((slot, i) => slot.querySelectorAll('.map').forEach((map) => {
  const ready = () => view.panels[i] && view.panels[i].header;
  map.addEventListener('pointermove', (e) => { if (ready() && e.pointerType === 'mouse') { view.hover = cellAt(map, e, view.panels[i]); schedule(); } });
  map.addEventListener('pointerleave', () => { view.hover = -1; schedule(); });
  map.addEventListener('click', (e) => { if (ready()) choose(cellAt(map, e, view.panels[i]), i); });
  map.addEventListener('keydown', (e) => {
    const step = ready() && { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -view.panels[i].header.grid[1], ArrowDown: view.panels[i].header.grid[1] }[e.key];
    if (e.key === 'Escape') choose(-1, i);
    if (!step) return;
    e.preventDefault();
    const to = view.chosen < 0 ? 0 : view.chosen + step;
    if (to >= 0 && to < view.panels[i].header.cells) choose(to, i);
  });
}));

$('.play').addEventListener('click', () => {
  view.playing = !view.playing;
  if (view.playing && view.t >= head() && !live()) view.t = 0;
  view.follow = false;
  view.last = performance.now();
  schedule();
});
$('.back').addEventListener('click', () => goTo(Math.floor(view.t) - 1));
$('.forth').addEventListener('click', () => goTo(Math.floor(view.t) + 1));
$('.time').addEventListener('input', (e) => goTo(Number(e.target.value)));
for (const name of ['.opacity', '.layer']) $(name).addEventListener('input', schedule);
$('.table').addEventListener('toggle', schedule);

for (const canvas of root.querySelectorAll('.glyph')) {
  const o = palette.outcomes[canvas.dataset.outcome], g = canvas.getContext('2d');
  g.globalAlpha = 0.35; g.fillStyle = o.colour; g.fillRect(0, 0, 36, 36); g.globalAlpha = 1;
  glyph(g, o.shape, 18, 18, 11, o.colour, 'rgba(255,255,255,.9)');
}

new ResizeObserver(schedule).observe(root);
new MutationObserver(schedule).observe(document.body, { attributes: true, attributeFilter: ['class'] });
watch('value', read);
read();
