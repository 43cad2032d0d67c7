// The live map: reads a growing string of JSON lines, keeps every event, and draws the state at one round of one clock.
//
// Runs once, when the component is mounted, with `element`, `trigger`, `props` and `watch`. Text is written with
// textContent only. All view state (time, selection, layer) lives here; the server only appends to the string.
// The files of this folder are joined in the order given in `viz/component.py` and share one scope: state, draw, words,
// frame, then a file per feature, which joins in through `hooks`, and hands last.

const root = element.querySelector('.csd-viewer');
const $ = (selector, from = root) => from.querySelector(selector);
const { outcomes, layers, ramp: RAMP, signed: SIGNED } = JSON.parse(JSON.stringify(props.palette)); // plain copies: props is a slow proxy
const slots = [...root.querySelectorAll('.panel')];
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const FRESH = { text: '', part: '', run: null, panels: [], clock: 0, playing: false, follow: false, hover: -1, chosen: -1, broken: false };
const view = { ...FRESH, unit: 'rounds', focus: 0, only: '', frame: 0, then: 0, drawn: '', dirty: true, spoken: 0, said: '' };
const hooks = { // what features add: each list is called in order
  run: [], //   (): a new run begins
  frame: [], // (): the panels of this frame are drawn
  map: [], //   (board, panel, ink): on top of both maps of a panel, below the selected cell
  card: [], //  (slot, panel, cell or null): the reason card is written anew
};
const call = (name, ...args) => hooks[name].forEach((f) => f(...args));

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
  call('run');
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
  sum.clock = sum.seconds_draft + sum.seconds_target + sum.seconds_verify; // what the map costs to record is left out
  return sum;
}

function takePicture(p, e) {
  if (!/^data:image\/(webp|png);base64,[A-Za-z0-9+/=]+$/.test(e.data)) return;
  const image = new Image();
  image.onload = redraw;
  image.src = e.data;
  p.pictures.push({ cells: e.cells, round: e.round, image });
}

// ---- state at the clock ----

const timed = () => view.unit === 'seconds'; // the clock counts seconds as measured, or rounds
const when = (p, n) => (n <= 0 ? 0 : timed() ? p.sums[n - 1].clock : n); // the clock at which a panel has n rounds
const head = () => Math.max(0, ...view.panels.map((p) => when(p, p.rounds.length)));
const step = () => Math.max(0, ...view.panels.map(done)); // rounds of the panel that has most of them
const live = () => Boolean(view.run) && !view.run.recorded && view.panels.some((p) => !p.footer);

function done(p) { // rounds of this panel that have happened
  if (!timed()) return Math.min(Math.floor(view.clock), p.rounds.length);
  let low = 0, high = p.rounds.length; // the last round that ended by now; times only grow
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (when(p, mid) <= view.clock + 1e-9) low = mid; else high = mid - 1;
  }
  return low;
}

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
