// Words and numbers: the reason card of a cell, the numbers of a panel, the status line.

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
  call('card', slot, p, cell);
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
  const time = head() ? 'round ' + step() : 'waiting for the first round';
  const stopped = view.panels.some((p) => p.footer && p.footer.status === 'stopped');
  return [live() ? 'live' : stopped ? 'stopped' : 'done', [what, time, ...words].join(' · ')];
}

function say(words, status) { // the spoken twin of the status line: at ends at once, else every few seconds
  const now = performance.now();
  if (words === view.said || (view.said && status === 'live' && now - view.spoken < 5000) || view.playing) return;
  Object.assign(view, { said: words, spoken: now });
  write($('.spoken'), words);
}
