// What visitors waited for. Quantiles, cuts and findings come from the store of visits, once a minute and when asked.

import { ask, byId, count, el, mark, say, table } from './parts.js';

const MINUTE = 60000;
const NAMES = { handshake: 'handshake', ttfb: 'first byte', lcp: 'largest paint' };

const ms = (value) => (value === null || value === undefined ? '–' : value < 10 ? `${value.toFixed(1)} ms` : `${count(value)} ms`);
const between = (of) => (of ? `${ms(of.value)} (${count(of.low)} to ${count(of.high)})` : 'too few');
const percent = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
const signed = (part) => `${part > 0 ? '+' : ''}${(100 * part).toFixed(1)} %`;
const when = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace('T', ' ');

let turn = 0;

export async function visitors() {
  const asked = ['span', 'metric', 'host'].map((name) => `${name}=${encodeURIComponent(byId(`v-${name}`).value)}`);
  const own = turn += 1;
  const found = await ask(`/api/visitors?${asked.join('&')}`);
  if (own !== turn) return;
  byId('visitors').hidden = byId('n-visitors').hidden = !found.on;
  if (found.on) show(found);
}

function show(found) {
  say('v-note', found.error ? `Visits cannot be read: ${found.error}` : `${count(found.recorded)} visits since the start, ${count(found.dropped)} lost`);
  const chosen = byId('v-host').value;
  const hosts = found.hosts.map((host) => el('option', { value: host, selected: host === chosen }, host));
  byId('v-host').replaceChildren(el('option', { value: '' }, 'all hosts'), ...hosts);
  const points = found.series.filter(Boolean).flatMap((series) => series.points.map((point) => ({ ...point, name: NAMES[series.metric] || series.metric })));
  points.sort((a, b) => b.start - a.start || a.name.localeCompare(b.name));
  table('v-series', 'Quantiles, the latest first (UTC)', [['from', 'w'], ['of', 'w'], ['visits', 'n'], ['p50', 'n'], ['p95', 'n'], ['p99', 'n']],
    points.map((point) => [when(point.start), point.name, count(point.count), ms(point.p50), ms(point.p95), ms(point.p99)]), 'No visit in this time.');
  table('v-worth', 'What a change would be worth', [['finding', 'long'], ['less to wait', 'n'], ['compared', 'n wide']],
    ((found.worth || {}).findings || []).map((one) => [one.text, between(one.difference), percent(one.matched)]),
    'No difference is certain: no interval excludes zero.');
  const cuts = ((found.cuts || {}).dimensions || []).flatMap((cut) => cut.values.map((value) => [cut.dimension, value.name, count(value.visits), percent(value.share), between(value.median)]));
  table('v-cuts', 'Cuts: median with its 95 % interval', [['by', 'w dim'], ['value', 'long'], ['visits', 'n'], ['share', 'n wide'], ['median', 'n']], cuts, 'No visit in this time.');
  const arms = (found.experiments || []).flatMap((one) => one.arms.map((arm, index) => [
    index ? '' : one.name, arm.name, count(arm.visits), ms(arm.mean),
    arm.difference ? `${signed(arm.difference.value)} (${signed(arm.difference.low)} to ${signed(arm.difference.high)})` : '–',
    index ? '' : el('span', {}, mark(one.decided ? 'decided' : 'running', one.decided ? 'teal' : ''), ` ${one.text}`),
  ]));
  table('v-experiments', 'Experiments', [['name', 'long'], ['arm', 'long'], ['visits', 'n'], ['mean', 'n wide'], ['difference', 'n'], ['', 'long wide']], arms, 'There is no experiment.');
}

['span', 'metric', 'host'].forEach((name) => byId(`v-${name}`).addEventListener('change', () => visitors()));
setInterval(() => document.hidden || visitors().catch(() => {}), MINUTE);
