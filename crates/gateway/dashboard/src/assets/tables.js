// Lists: what they are asked for, and what their rows say.

import { ask, bar, byId, clock, count, day, el, mark, say, share, table, time } from './parts.js';
import { spark, waterfall } from './charts.js';

const REASONS = {
  'no-session': 'the session is not known here, or no longer', 'unknown-key': 'its ticket key is not known here',
  expired: 'the ticket had expired', forged: 'the ticket was forged or damaged', 'store-late': 'the session store was late',
  'store-down': 'the session store was down', used: 'the session was used before', unsuitable: 'made for another name or other settings',
};

const KINDS = { full: 'full', 'session-id': 'resumed by session ID', ticket: 'resumed by ticket', psk: 'resumed by PSK', '0-rtt': 'resumed, 0-RTT' };

const milliseconds = (seconds, of) => (of ? time(1e6 * seconds / of) : '–');

/** Counts of the last minute beside those since the start; `before` is what was counted a minute ago. */
export function handshakes(now, before) {
  const key = (row) => row.slice(0, -1).join(' ');
  const past = new Map(before.handshakes.map((row) => [key(row), row.at(-1)]));
  const rows = now.handshakes.map((row) => ({ row, since: row[3], last: row[3] - (past.get(key(row)) || 0) }));
  const all = rows.reduce((sum, one) => sum + one.since, 0);
  rows.sort((a, b) => b.since - a.since);
  table('shake-table', { hidden: 'Completed handshakes' }, [['kind'], ['version', 'w'], ['group', 'wide'], ['last minute', 'n'], ['since start', 'n'], ['share', 'n']],
    rows.map(({ row, since, last }) => [KINDS[row[2]] || row[2], row[0], row[1] === 'none' ? '–' : row[1], count(last), count(since), el('span', {}, bar(since / all), `${share(since, all)} %`)]),
    'No handshake yet.');
  const named = (list, then, what, words) => {
    const old = new Map(then);
    return list.map(([name, since]) => [what, words[name] || name, count(since - (old.get(name) || 0)), count(since)]);
  };
  const missed = named(now.missed, before.missed, 'not resumed', REASONS);
  const failed = named(now.failures, before.failures, 'failed', {});
  table('missed-table', { hidden: 'Sessions that were not resumed, and handshakes that failed' }, [['', 'w dim'], ['reason'], ['last minute', 'n'], ['since start', 'n']],
    [...missed, ...failed], 'Nothing of the kind yet.');
}

export function keys(now, before) {
  const past = new Map(before.operations.map((of) => [of.engine + of.algorithm, of]));
  say('key-note', `${count(now.waiting)} in the queue`);
  table('key-table', { hidden: 'Key operations by engine' }, [['engine', 'w'], ['key', 'w'], ['last minute', 'n'], ['since start', 'n'], ['failed', 'n'], ['mean wait, last minute', 'n wide'], ['mean work, last minute', 'n wide']],
    now.operations.map((of) => {
      const old = past.get(of.engine + of.algorithm) || { done: 0, failed: 0, wait: 0, compute: 0 };
      const done = of.done + of.failed - old.done - old.failed;
      return [of.engine, of.algorithm, count(of.done - old.done), count(of.done), count(of.failed), milliseconds(of.wait - old.wait, done), milliseconds(of.compute - old.compute, done)];
    }), 'No key operation yet.');
  const sizes = now.batches.map((number, index) => [`RSA, ${index + 1} at once`, count(number), '–']).filter((row) => row[1] !== '0');
  const gathered = now.gathered.filter(([, lanes, alone]) => lanes + alone > 0).map(([operation, lanes, alone, batches]) =>
    [`${operation}s of one turn`, count(lanes + alone), batches ? `${(lanes / batches).toFixed(1)} at once, ${share(lanes, lanes + alone)} % of them` : 'one by one']);
  table('batch-table', 'Operations that are performed together', [['operations'], ['since start', 'n'], ['batches', 'n']], [...sizes, ...gathered], 'None yet.');
}

export function workers(all) {
  table('worker-table', 'Workers: the last second, and the worst delay of the last minute', [['worker', 'w'], ['busy', 'w'], ['event loop late by', 'n'], ['', 'n']],
    all.map(([busy, delay, stuck], index) => [String(index), el('span', {}, bar(busy), `${Math.round(busy * 100)} %`), time(delay), stuck ? mark('blocked', 'red') : '']),
    'No worker yet.');
}

/** The level of the overload, its sources, and what was refused since the start. */
export function pressure(now) {
  const refused = now.refused.reduce((sum, [, number]) => sum + number, 0);
  say('pressure-note', `overload: ${now.level}${now.number ? `, ${now.source}` : ''}; ${count(refused)} refused`);
  table('pressure-table', 'Sources of overload, as shares of their limits', [['source', 'w'], ['now', 'w']],
    now.sources.map(([name, value]) => [name, el('span', {}, bar(Math.min(1, value)), `${Math.round(100 * value)} %`)]), 'No source yet.');
}

const SOURCES = { handshake: ['handshake', ''], client: ['request, client', ''], upstream: ['request, upstream', 'amber'], internal: ['request, brisk', 'red'], warning: ['log', 'amber'], error: ['log', 'red'] };

export async function problems() {
  const { problems: all } = await ask('/api/problems');
  table('problem-table', { hidden: 'Problems by cause' }, [['cause', 'long'], ['where', 'w wide'], ['times', 'n'], ['by minute', 'w wide'], ['last', 'n'], ['such as', 'long dim wide']],
    all.map((one) => {
      const [where, colour] = SOURCES[one.source] || [one.source, ''];
      const cause = el('span', {}, one.reason, one.example && el('small', { class: 'narrow dim' }, one.example));
      return [cause, mark(where, colour), count(one.total), spark(one.counts), clock(one.last), one.example];
    }), 'Nothing went wrong in the last 15 minutes.');
}

export async function connections(order) {
  const { connections: all } = await ask(`/api/connections?order=${order}`);
  const total = (one) => one.steps.reduce((sum, [, us]) => sum + us, 0);
  const longest = Math.max(1, ...all.map(total));
  table('slow-table', { hidden: 'Connections and their steps' }, [['from', 'w'], ['name', 'long'], ['client', 'w wide'], ['handshake', 'wide'], ['RTT', 'n wide'], ['waited', 'n'], ['steps', '']],
    all.map((one) => [
      clock(one.started), one.name || '–', one.client,
      one.failed ? mark(one.end, 'red') : [one.version, one.kind, one.alpn].filter(Boolean).join(', ') || one.listener,
      time(one.rtt), time(total(one)), waterfall(one.steps, longest),
    ]), 'No connection has ended in the last minutes.');
}

/** A list that is searched and cut into pages by the gateway. */
export class Listed {
  constructor(name, show) {
    Object.assign(this, { name, show, page: 0, text: '' });
    byId(`q-${name}`).addEventListener('input', (event) => {
      this.text = event.target.value;
      this.page = 0;
      clearTimeout(this.later);
      this.later = setTimeout(() => this.ask(), 150);
    });
    const button = (label, by) => {
      const made = el('button', { type: 'button', 'aria-label': `${label} page of ${name}` }, label);
      made.addEventListener('click', () => {
        this.page = Math.max(0, this.page + by);
        this.ask();
      });
      return made;
    };
    this.buttons = [button('previous', -1), button('next', 1)];
    this.said = el('span', { role: 'status' });
    byId(`p-${name}`).replaceChildren(...this.buttons, this.said);
  }

  async ask() {
    const turn = this.turn = (this.turn || 0) + 1;
    const list = await ask(`/api/${this.name}?page=${this.page}&q=${encodeURIComponent(this.text)}`);
    // A later question may have been answered earlier.
    if (turn !== this.turn) return;
    this.page = list.page;
    this.buttons.forEach((button) => button.classList.toggle('none', list.pages === 1));
    this.buttons[0].disabled = list.page === 0;
    this.buttons[1].disabled = list.page + 1 >= list.pages;
    const said = list.pages === 1 ? `${count(list.found)} in all` : `page ${list.page + 1} of ${list.pages}, ${count(list.found)} in all`;
    if (this.said.textContent !== said) this.said.textContent = said;
    this.show(list.rows, this.text);
  }
}

export const upstreams = new Listed('upstreams', (rows, text) =>
  table('upstream-table', { hidden: 'Upstream servers' }, [['group', 'long'], ['server', 'long'], ['health', 'w'], ['open', 'n wide'], ['connections', 'n wide'], ['requests', 'n'], ['failed', 'n'], ['limit', 'n']],
    rows.map((one) => [one.group, one.server, one.healthy ? mark('healthy', 'teal') : mark('out of order', 'red'), count(one.open), count(one.connections), count(one.requests), count(one.failures), one.limit ? mark(count(one.limit), 'amber') : '–']),
    text ? 'No upstream has that in its name.' : 'There are no upstreams.'));

export const certificates = new Listed('certificates', (rows, text) =>
  table('certificate-table', { hidden: 'Certificates' }, [['names', 'long'], ['key', 'w wide'], ['days left', 'n'], ['ends', 'w wide'], ['state', 'long']],
    rows.map((one) => [
      one.names.join(', ') + (one.more ? ` and ${one.more} more` : '') || one.title, one.key,
      one.days < 14 ? mark(one.days.toFixed(1), one.days < 3 ? 'red' : 'amber') : count(Math.floor(one.days)), day(one.not_after), state(one),
    ]), text ? 'No certificate has that in its names.' : 'There are no certificates.'));

function state(one) {
  if (one.revoked) return mark('revoked', 'red');
  if (one.days < 0) return mark('expired', 'red');
  if (one.trouble) return el('span', {}, mark('trouble', 'amber'), ` ${one.trouble}`);
  if (!one.complete) return mark('chain incomplete', 'amber');
  if (one.wants_staple && !one.staple) return mark('no staple', 'amber');
  return one.staple ? 'good, stapled' : 'good';
}
