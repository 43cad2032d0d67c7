// One frame: the clock, what a panel shows at it, and the table twin of the map.

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
    view.clock = Math.min(head(), view.clock + passed * Number($(timed() ? '.rate-seconds' : '.rate').value));
    if (view.clock >= head()) Object.assign(view, { playing: false, follow: live(), dirty: true }); // caught up
  } else if (view.follow) view.clock = head();
  if (view.dirty || view.drawn !== moment()) draw();
  if (view.playing) schedule();
}

const moment = () => view.panels.map(done).join();

function draw() {
  Object.assign(view, { dirty: false, drawn: moment() });
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
  call('frame');
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
  $('.time').step = timed() ? end / 1000 || 1 : 1;
  $('.time').max = end;
  $('.time').value = timed() ? view.clock : step();
  write($('.clock'), timed() ? view.clock.toFixed(2) + ' of ' + end.toFixed(2) + ' s' : 'round ' + step() + ' of ' + end);
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
