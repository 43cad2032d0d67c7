// Hands: mouse, touch and keyboard; then the first reading. Comes last.

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

function goTo(clock) {
  view.clock = Math.max(0, Math.min(head(), clock));
  Object.assign(view, { playing: false, follow: live() && view.clock >= head() });
  redraw();
}

function jump(outcome) { // to the next round, in any panel, that has such a cell, and to that cell
  const found = view.panels.map((p) => {
    const i = p.rounds.findIndex((r, n) => n >= done(p) && r.cells.outcome.includes(outcome));
    return i < 0 ? null : { at: when(p, i + 1), pos: p.rounds[i].cells.pos[p.rounds[i].cells.outcome.indexOf(outcome)] };
  }).filter(Boolean).sort((a, b) => a.at - b.at);
  if (found.length) view.chosen = found[0].pos;
  goTo(found.length ? found[0].at : head());
}

function move(by) { // to the end of the next or the last round of any panel
  const ends = view.panels.map((p) => {
    const n = done(p);
    if (by > 0) return n < p.rounds.length ? when(p, n + 1) : head();
    return when(p, when(p, n) < view.clock - 1e-9 ? n : n - 1);
  });
  goTo(by > 0 ? Math.min(...ends) : Math.max(...ends));
}

function setUnit() { // the same moment on the other clock: that of the panel furthest on
  const rounds = view.panels.map(done), n = step(), lead = view.panels[rounds.indexOf(n)];
  view.unit = $('.unit').value;
  view.clock = n ? when(lead, n) : 0;
  for (const [name, unit] of [['.rate', 'rounds'], ['.rate-seconds', 'seconds']]) $(name).hidden = unit !== view.unit;
  redraw();
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
    const p = view.panels[i], columns = Math.max(1, ...view.panels.map((q) => q.rounds.length));
    goTo(when(p, Math.min(p.rounds.length, Math.floor(((e.clientX - box.left) / box.width) * columns) + 1)));
  });
});

$('.play').addEventListener('click', play);
$('.back').addEventListener('click', () => move(-1));
$('.forth').addEventListener('click', () => move(1));
$('.time').addEventListener('input', (e) => goTo(Number(e.target.value)));
$('.head-button').addEventListener('click', () => goTo(head()));
$('.unit').addEventListener('input', setUnit);
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
