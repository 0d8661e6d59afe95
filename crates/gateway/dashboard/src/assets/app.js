// The dashboard: takes events, keeps the last minute, and asks for lists while the page is seen.

import { ask, byId, count, rate, say, share, time } from './parts.js';
import { Chart, stepLegend, trend } from './charts.js';
import { certificates, connections, handshakes, keys, pressure, problems, upstreams, workers } from './tables.js';

const MINUTE = 60000;
const LISTS_EVERY = 5000;

/** What was counted, with the time of this page; the oldest is a minute old. */
const past = [];
/** The events that are followed, when the gateway that they are of began, and whether the page is to stand still. */
let source = null;
let start = null;
let paused = false;
const percent = (part) => `${Math.round(part)} %`;
const charts = [
  new Chart('requests', 'Requests per second', [{ name: 'all', column: 2, colour: '--blue' }, { name: 'failed', column: 3, colour: '--red' }]),
  new Chart('times', 'Response time', [{ name: 'median', column: 9, colour: '--blue' }, { name: '99 %', column: 10, colour: '--violet' }], { format: (ms) => time(1000 * ms) }),
  new Chart('kinds', 'Handshakes per second', [
    { name: 'full', column: 5, colour: '--blue' }, { name: 'resumed', column: 6, colour: '--teal' },
    { name: '0-RTT', column: 7, colour: '--violet' }, { name: 'failed', column: 8, colour: '--red' },
  ]),
  new Chart('busy', 'Processor use', [{ name: 'busiest worker', column: 11, colour: '--blue' }, { name: 'mean', column: 12, colour: '--teal' }], { format: percent, top: 100 }),
];
/** Tiles with a line: what of a row it is. */
const TRENDS = {
  requests: (row) => row[2], errors: (row) => row[3], handshakes: (row) => row[5] + row[6] + row[7], open: (row) => row[1], busy: (row) => row[11],
  resumed: (row) => (row[5] + row[6] + row[7] ? (row[6] + row[7]) / (row[5] + row[6] + row[7]) : null),
};

const sum = (list) => list.reduce((all, one) => all + one, 0);
const order = () => document.querySelector('input[name=order]:checked').value;

function kinds(now) {
  const of = (wanted) => sum(now.handshakes.filter((row) => wanted(row[2])).map((row) => row[3]));
  return { full: of((kind) => kind === 'full'), resumed: of((kind) => kind !== 'full') };
}

function show(now) {
  const at = performance.now();
  while (past.length > 1 && at - past[1].at > MINUTE) past.shift();
  const before = (past[0] || { now }).now;
  past.push({ at, now });
  const [, open, requests, errors, accepted, full, resumed, early, failed] = now.row || [0, now.open, 0, 0, 0, 0, 0, 0, 0];
  const minute = (all, old) => `${count(all - old)} in the last minute`;
  say('t-requests', rate(requests));
  say('s-requests', minute(sum(now.requests), sum(before.requests)));
  say('t-errors', rate(errors));
  say('s-errors', minute(sum(now.errors), sum(before.errors)));
  byId('t-errors').closest('.tile').classList.toggle('bad', errors > 0 && errors > requests / 20);
  say('t-handshakes', rate(full + resumed + early));
  say('s-handshakes', failed ? `${rate(failed)} failed /s` : 'none failed just now');
  const [then, all] = [kinds(before), kinds(now)];
  const recent = { full: all.full - then.full, resumed: all.resumed - then.resumed };
  const of = recent.full + recent.resumed > 0 ? recent : all;
  say('t-resumed', share(of.resumed, of.full + of.resumed));
  say('s-resumed', of === recent ? 'of the last minute' : 'since the start');
  say('t-open', count(open));
  say('s-open', `${rate(accepted)} new /s`);
  const busy = now.workers.map(([part]) => part);
  say('t-busy', String(Math.round(100 * Math.max(0, ...busy))));
  say('s-busy', `${now.workers.length} workers, mean ${percent(100 * sum(busy) / Math.max(1, busy.length))}`);
  handshakes(now, before);
  keys(now.keys, before.keys);
  workers(now.workers);
  pressure(now.pressure);
  byId('t-busy').closest('.tile').classList.toggle('bad', now.pressure.number > 1);
}

function state(name, text) {
  byId('state').className = name;
  say('state-text', text);
}

const rests = () => paused || document.hidden;

/** Lists are asked for while the page can be seen. One that fails is asked for again the next time. */
async function lists() {
  if (rests()) return;
  const asked = [problems(), connections(order()), upstreams.ask(), certificates.ask()];
  await Promise.allSettled(asked);
}

/** Begins with what the gateway knows of the last minutes. What this page knew may be older, or of another process. */
async function begin() {
  past.length = 0;
  const { rows, login, past: kept, start: began } = await ask('/api/history');
  start = began;
  byId('logout').hidden = !login;
  past.splice(0, past.length, ...kept.map(({ ago, now }) => ({ at: performance.now() - ago, now })));
  charts.forEach((chart) => chart.show(rows));
  trends();
}

function trends() {
  for (const [name, of] of Object.entries(TRENDS)) trend(`t-${name}`, charts[0].rows.map(of));
}

/** What visitors waited for. Its script is loaded when visits are stored. */
let stored = false;
async function visits() {
  if (rests()) return;
  stored = stored || (await ask('/api/visitors')).on;
  if (stored) (await import('./visitors.js')).visitors();
}

function follow() {
  if (source || rests()) return;
  const events = source = new EventSource('/events');
  let lost = false;
  events.addEventListener('open', () => {
    if (lost) begin().catch(() => {});
    lost = false;
  });
  events.addEventListener('message', (event) => {
    const now = JSON.parse(event.data);
    state('live', 'live');
    if (now.start !== start) {
      start = now.start;
      begin().catch(() => {});
    }
    show(now);
    const known = charts[0].rows.at(-1);
    if (!now.row || (known && known[0] >= now.row[0])) return;
    charts.forEach((chart) => chart.add(now.row));
    trends();
  });
  events.addEventListener('error', () => {
    if (events !== source) return;
    lost = true;
    past.length = 0;
    state('lost', 'connection lost');
    // A client that may not look any more is asked to log in.
    if (events.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(resume, 5000);
    }
  });
}

/** Goes on, or stands still: without a connection, of which a browser has few for all its pages of one host. */
function resume() {
  if (rests()) {
    if (source) source.close();
    source = null;
    if (paused) state('', 'paused');
    return;
  }
  lists();
  if (!source) begin().then(follow, follow);
}

function pause() {
  paused = !paused;
  byId('pause').setAttribute('aria-pressed', String(paused));
  resume();
}

stepLegend();
document.querySelectorAll('input[name=order]').forEach((input) => input.addEventListener('change', () => connections(order())));
document.addEventListener('visibilitychange', resume);
byId('pause').addEventListener('click', pause);
setInterval(lists, LISTS_EVERY);
setInterval(() => visits().catch(() => {}), MINUTE);
visits().catch(() => {});
resume();
