// What visitors waited for. Quantiles, cuts and findings come from the store of visits, once a minute and when asked.

import { ask, byId, count, el, mark, say, table } from './parts.js';

const NAMES = { handshake: 'handshake', ttfb: 'first byte', lcp: 'largest paint', inp: 'interaction', cls: 'layout shift', fcp: 'first paint', wait: 'wait' };

const ms = (value) => (value === null || value === undefined ? '–' : value < 10 ? `${value.toFixed(1)} ms` : `${count(value)} ms`);
const between = (of) => (of ? `${ms(of.value)} (${count(of.low)} to ${count(of.high)})` : 'too few');
const percent = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
const signed = (part) => `${part > 0 ? '+' : ''}${(100 * part).toFixed(1)}`;
const when = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace('T', ' ');

const CHOICES = ['span', 'metric', 'host', 'by', 'and', 'at', 'page'];

let turn = 0;

export async function visitors() {
  // The choice of a page is made by pages.js.
  const asked = CHOICES.map((name) => `${name}=${encodeURIComponent((byId(`v-${name}`) || { value: '' }).value)}`);
  const own = turn += 1;
  const found = await ask(`/api/visitors?${asked.join('&')}`).catch((error) => ({ error }));
  if (own !== turn) return;
  if (found.error instanceof Error) return say('v-note', `Visits cannot be read (${found.error.message}): the figures below are older, and may be of another choice.`);
  byId('visitors').hidden = byId('n-visitors').hidden = !found.on;
  if (!found.on) return;
  show(found);
  const [{ lines }, { pages }] = await Promise.all([import('./lines.js'), import('./pages.js')]);
  pages(found);
  lines(found, byId('v-metric').value);
}

/** The hosts to choose from. The chosen one stays, and a list that did not change is left alone: it may be open. */
function hosts(found) {
  const select = byId('v-host');
  const chosen = select.value;
  const names = found.includes(chosen) || !chosen ? found : [chosen, ...found];
  const options = [el('option', { value: '' }, 'all hosts'), ...names.map((host) => el('option', { value: host }, host))];
  const same = options.length === select.options.length && options.every((option, index) => option.value === select.options[index].value);
  if (same || document.activeElement === select) return;
  select.replaceChildren(...options);
  select.value = chosen;
}

/** What the figures are of. */
function note(found) {
  if (found.error) return `Visits cannot be read: ${found.error}`;
  const of = found.cuts || {};
  return [
    `${count(found.recorded)} visits since the start, ${count(found.dropped)} lost`,
    of.sampled < of.visits && `cuts and findings are estimated from a sample of ${count(of.sampled)}`,
    found.more_hosts && `${count(found.more_hosts)} more hosts cannot be chosen here`,
  ].filter(Boolean).join('; ');
}

function state(experiment) {
  const is = experiment.decided ? 'decided' : 'running';
  return experiment.ended ? `ended, ${experiment.decided ? 'decided' : 'undecided'}` : is;
}

function show(found) {
  say('v-note', note(found));
  hosts(found.hosts || []);
  const points = found.series.filter(Boolean).flatMap((series) => series.points.map((point) => ({ ...point, name: NAMES[series.metric] || series.metric, unit: series.metric === 'cls' ? (shift) => shift.toFixed(2) : ms })));
  points.sort((a, b) => b.start - a.start || a.name.localeCompare(b.name));
  table('v-series', 'Quantiles, the latest first (UTC)', [['from', 'w'], ['of', 'w'], ['visits', 'n'], ['p50', 'n'], ['p75', 'n'], ['p95', 'n'], ['p99', 'n wide']],
    points.map((point) => [when(point.start), point.name, count(point.count), ...[point.p50, point.p75, point.p95, point.p99].map(point.unit)]), 'No visit in this time.');
  table('v-worth', 'What a change would be worth', [['finding', 'long'], ['less to wait', 'n'], ['compared', 'n wide']],
    ((found.worth || {}).findings || []).map((one) => [one.text, between(one.difference), percent(one.matched)]),
    'No difference is certain: no interval excludes zero.');
  const cuts = ((found.cuts || {}).dimensions || []).flatMap((cut) => {
    const by = cut.only_new_connections ? `${cut.dimension} (new connections)` : cut.dimension;
    const rows = cut.values.map((value) => [by, value.name, count(value.visits), percent(value.share), between(value.median)]);
    return cut.left_out ? [...rows, [by, `${count(cut.left_out)} more values, with fewer visits`, '–', '–', '–']] : rows;
  });
  table('v-cuts', 'Cuts: median with its 95 % interval', [['by', 'w dim'], ['value', 'long'], ['visits', 'n'], ['share', 'n wide'], ['median', 'n']], cuts, 'No visit in this time.');
  const arms = (found.experiments || []).flatMap((one) => [
    [el('span', {}, el('b', {}, one.name), `, by ${NAMES[one.metric] || one.metric} `, mark(state(one), one.decided ? 'teal' : ''), ` ${one.text} ${one.advice || ''}`)],
    ...one.arms.map((arm, index) => [
      arm.name, count(arm.visits), ms(arm.mean),
      arm.difference ? `${signed(arm.difference.value)} % (${signed(arm.difference.low)}\u00a0to\u00a0${signed(arm.difference.high)})` : index ? 'too few' : 'the control',
    ]),
  ]);
  table('v-experiments', 'Experiments', [['arm', 'long'], ['visits', 'n'], ['mean', 'n wide'], ['difference', 'n']], arms, 'There is no experiment.');
}

CHOICES.slice(0, -1).forEach((name) => byId(`v-${name}`).addEventListener('change', visitors));
