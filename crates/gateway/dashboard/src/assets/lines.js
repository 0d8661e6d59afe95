// Charts of what visitors waited for: the 75th percentile over time, with the thresholds of Web Vitals and marks of deployments.
// Loaded when visits are stored.

import { byId, clock, colour, count, el, legend, table } from './parts.js';
import { button } from './pages.js';

/** Metric, name, and the thresholds of Web Vitals: up to the first is good, above the second is poor. */
const METRICS = {
  lcp: ['largest paint (LCP)', 2500, 4000], inp: ['interaction (INP)', 200, 500], cls: ['layout shift (CLS)', 0.1, 0.25],
  fcp: ['first paint (FCP)', 1800, 3000], ttfb: ['first byte (TTFB)', 800, 1800], wait: ['wait for the response'],
};
const COLOURS = ['--blue', '--teal', '--violet', '--olive', '--pink', '--grey'];
const plots = new Map();

export const value = (metric, number) => {
  if (number === null || number === undefined) return '–';
  if (metric === 'cls') return number.toFixed(2);
  if (number === 0) return '0';
  return number < 1000 ? `${number < 10 ? number.toFixed(1) : count(number)} ms` : `${(number / 1000).toFixed(2)} s`;
};
const rated = (metric, number) => {
  const [, good, poor] = METRICS[metric] || [];
  if (!good || number === undefined) return '';
  return number <= good ? 'good' : number > poor ? 'poor' : 'needs work';
};

/** Lines across: thresholds by their height, marks by their time. */
function drawn(plot, metric, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  const line = (x1, y1, x2, y2, of, dash) => {
    ctx.strokeStyle = colour(of);
    ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.lineTo(x2, y2);
    ctx.stroke();
  };
  (METRICS[metric] || []).slice(1).forEach((limit, index) => {
    const y = plot.valToPos(limit, 'y', true);
    if (y >= bbox.top && y <= bbox.top + bbox.height) line(bbox.left, y, bbox.left + bbox.width, y, index ? '--red' : '--teal', [4, 4]);
  });
  for (const mark of marks) {
    const x = plot.valToPos(mark.at, 'x', true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    line(x, bbox.top, x, bbox.top + bbox.height, mark.kind === 'reload' ? '--grey' : '--violet', mark.kind === 'reload' ? [2, 3] : []);
    if (!mark.name) continue;
    ctx.fillStyle = colour('--soft');
    ctx.textAlign = 'left';
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.fillText(mark.name, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
}

/** `lines`: name and points; a point is a time in seconds and a value. */
function chart(id, metric, lines, range, marks) {
  const host = byId(id);
  const times = [...new Set(lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const of = new Map(line.points);
    return times.map((at) => of.get(at) ?? null);
  });
  const long = range[1] - range[0] > 2 * 86400;
  const axis = { stroke: colour('--soft'), grid: { stroke: colour('--rule'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
  const name = (at) => (long ? new Date(at * 1000).toISOString().slice(5, 10) : clock(at * 1000).slice(0, 5));
  if (plots.has(id)) plots.get(id).destroy();
  plots.set(id, new uPlot({
    width: host.clientWidth || 300, height: host.clientHeight || 160,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => range }, y: { range: (plot, low, high) => [0, Math.max(metric === 'cls' ? 0.05 : 1, (high || 0) * 1.15)] } },
    axes: [
      { ...axis, size: 26, space: 70, values: (plot, all) => all.map(name) },
      { ...axis, size: 58, space: 34, values: (plot, all) => all.map((at) => value(metric, at)) },
    ],
    series: [{}, ...lines.map((line, index) => ({ label: line.name, stroke: colour(COLOURS[index % COLOURS.length]), width: 1.5, points: { show: true, size: 4 }, spanGaps: true }))],
    hooks: { drawAxes: [(plot) => drawn(plot, metric, marks)] },
  }, [times, ...columns], host));
}

/** A click on a point says which line it belongs to. */
function pick(plot, dimension) {
  plot.over.addEventListener('click', () => {
    const { idx, top } = plot.cursor;
    const at = (series, index) => (index && series[idx] !== null && series[idx] !== undefined ? Math.abs(plot.valToPos(series[idx], 'y') - top) : Infinity);
    const distances = plot.data.map(at);
    const nearest = distances.indexOf(Math.min(...distances));
    if (distances[nearest] < 20) byId('v-lines').dispatchEvent(new CustomEvent('pick', { detail: { dimension, name: plot.series[nearest].label } }));
  });
}

/** A small chart for each metric. */
function overview(found, range) {
  const holder = byId('v-vitals');
  for (const [metric, [name]] of Object.entries(METRICS)) {
    const series = (found.series || []).find((one) => one && one.metric === metric) || { points: [] };
    if (!byId(`v-${metric}`)) {
      const plot = el('div', { class: 'plot small', id: `v-${metric}`, role: 'img' });
      holder.append(el('figure', {}, el('figcaption', { id: `v-${metric}-name` }), plot));
    }
    const last = series.points.at(-1);
    const state = last ? rated(metric, last.p75) : '';
    const says = `${name}: ${last ? value(metric, last.p75) : 'no visit'}${state ? `, ${state}` : ''}`;
    byId(`v-${metric}-name`).textContent = says;
    byId(`v-${metric}`).setAttribute('aria-label', `75th percentile over time. ${says}. The numbers are in the table of quantiles.`);
    chart(`v-${metric}`, metric, [{ name, points: series.points.map((point) => [point.start, point.p75]) }], range, found.marks || []);
  }
}

function byDimension(found, metric, range) {
  const { values: lines = [], dimension } = found.lines || {};
  byId('v-lines').setAttribute('aria-label', `75th percentile of ${metric} over time by ${dimension}`);
  chart('v-lines', metric, lines, range, found.marks || []);
  pick(plots.get('v-lines'), dimension);
  legend('l-lines', lines.map((line, index) => ({ name: `${line.name} (${count(line.visits)})`, colour: COLOURS[index % COLOURS.length] })));
  const of = found.table || { dimensions: ['', ''], rows: [], columns: [], cells: [] };
  table('v-pairs', `75th percentile by ${of.dimensions[0]} and ${of.dimensions[1]}, with visits`,
    [[of.dimensions[0], 'long'], ...of.columns.map((column) => [column, 'n'])],
    of.rows.map((row, index) => [of.dimensions[0] === 'page' ? button(row) : row, ...of.cells[index].map((cell) => (cell ? `${value(metric, cell.p75)} (${count(cell.visits)})` : '–'))]),
    'No visit in this time.');
}

function changes(found) {
  const rows = (found.changes || []).map((change, index) => [change, found.series[index]]).filter(([change, series]) => change && series);
  const cell = (metric, of) => (of ? `${value(metric, of.value)} (${value(metric, of.low)} to ${value(metric, of.high)}), ${count(of.count)}` : 'no visit');
  table('v-change', 'Before and after: 75th percentile with its 95 % interval, and visits', [['of', 'w'], ['before', 'n'], ['after', 'n']],
    rows.map(([change, series]) => [(METRICS[series.metric] || [series.metric])[0], cell(series.metric, change.before), cell(series.metric, change.after)]),
    byId('v-page').value ? 'Only all pages can be compared.' : 'Choose a mark above.');
}

/** The marks to compare; a chosen one stays. */
function marks(found) {
  const select = byId('v-at');
  if (document.activeElement === select) return;
  const chosen = select.value;
  const name = (mark) => `${new Date(mark.at * 1000).toISOString().slice(0, 16).replace('T', ' ')} ${mark.name || mark.kind}`;
  select.replaceChildren(el('option', { value: '' }, 'no mark'), ...[...(found.marks || [])].reverse().map((mark) => el('option', { value: mark.at }, name(mark))));
  select.value = chosen;
}

/** What is drawn; drawn again in other colours or another size. */
let last = null;
const again = () => last && lines(...last);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
addEventListener('resize', again);

export function lines(found, metric) {
  last = [found, metric];
  const series = (found.series || []).find(Boolean);
  const range = series ? [series.start, series.end] : [Date.now() / 1000 - 3600, Date.now() / 1000];
  overview(found, range);
  byDimension(found, metric, range);
  marks(found);
  changes(found);
}
