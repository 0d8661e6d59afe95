// Rates over time: a chart for who sees it, and the same as a table.

import { byId, colour, clock, el, legend, rate, table } from './parts.js';

const SECONDS = 600;
/** Seconds on the axis at least. */
const LEAST = 120;
const ROWS = 12;

export class Chart {
  /** `series`: name, column of a row, colour. */
  constructor(name, title, series) {
    Object.assign(this, { name, title, series, rows: [] });
    this.host = byId(`c-${name}`);
    this.host.setAttribute('role', 'img');
    this.host.setAttribute('aria-label', `${title} in the last ten minutes. The numbers are in the table below.`);
    this.details = this.host.parentElement.querySelector('details');
    this.details.addEventListener('toggle', () => this.numbers());
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(this.host);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw(true));
  }

  size() {
    return { width: this.host.clientWidth, height: this.host.clientHeight };
  }

  show(rows) {
    this.rows = rows.slice(-SECONDS);
    this.draw(false);
    const last = this.rows.at(-1);
    legend(`l-${this.name}`, this.series.map((one) =>
      ({ name: one.name, colour: one.colour, value: last ? rate(last[one.column]) : '' })));
    this.numbers();
  }

  add(row) {
    this.show([...this.rows, row]);
  }

  data() {
    const end = this.rows.length ? this.rows.at(-1)[0] / 1000 : Date.now() / 1000;
    const begin = this.rows.length ? this.rows[0][0] / 1000 : end;
    this.window = [Math.max(end - SECONDS, Math.min(begin, end - LEAST)), end];
    return [this.rows.map((row) => row[0] / 1000), ...this.series.map((one) => this.rows.map((row) => row[one.column]))];
  }

  draw(anew) {
    const data = this.data();
    if (anew && this.plot) {
      this.plot.destroy();
      this.plot = null;
    }
    if (this.plot) return this.plot.setData(data);
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--rule'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const line = (one) => ({ label: one.name, stroke: colour(one.colour), width: 1.5, points: { show: false }, spanGaps: false });
    this.plot = new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: {
        x: { time: true, range: () => this.window },
        y: { range: (plot, low, high) => [0, Math.max(1, (high || 0) * 1.1)] },
      },
      axes: [
        { ...axis, size: 26, space: 90, values: (plot, all) => all.map((at) => clock(at * 1000).slice(0, this.window[1] - this.window[0] > 300 ? 5 : 8)), incrs: [30, 60, 120, 300] },
        { ...axis, size: 48, space: 34, values: (plot, all) => all.map((at) => (at >= 10000 ? `${at / 1000}k` : String(at))) },
      ],
      series: [{}, ...this.series.map(line)],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    }, data, this.host);
  }

  /** Where the pointer is, the legend has the values of that second. */
  point(index) {
    const row = this.rows[index] || this.rows.at(-1);
    if (!row) return;
    legend(`l-${this.name}`, this.series.map((one) => ({ name: one.name, colour: one.colour, value: rate(row[one.column]) })));
  }

  numbers() {
    if (!this.details.open) return;
    const rows = [];
    for (let end = this.rows.length; end > 0 && rows.length < ROWS; end -= 10) {
      const part = this.rows.slice(Math.max(0, end - 10), end);
      const mean = (column) => part.reduce((sum, row) => sum + row[column], 0) / part.length;
      rows.push([clock(part[0][0]), ...this.series.map((one) => rate(mean(one.column)))]);
    }
    const columns = [['ten seconds from', 'w'], ...this.series.map((one) => [one.name, 'n'])];
    table(`n-${this.name}`, `${this.title}: mean of ten seconds`, columns, rows, 'Nothing yet.');
  }
}

/** A bar for each minute, the present one last; the number of all is beside it. */
export function spark(counts) {
  const ns = byId('logo').namespaceURI;
  const most = Math.max(1, ...counts);
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', `0 0 ${counts.length * 6} 20`);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `by minute, the present one last: ${counts.join(', ')}`);
  counts.forEach((value, index) => {
    const height = value ? Math.max(2, 20 * value / most) : 1;
    const rect = document.createElementNS(ns, 'rect');
    for (const [name, at] of Object.entries({ x: index * 6, y: 20 - height, width: 5, height })) rect.setAttribute(name, at);
    svg.append(rect);
  });
  return svg;
}

const STEPS = {
  hello: '--c-hello', certificate: '--c-certificate', 'key exchange': '--c-exchange', signature: '--c-signature',
  finished: '--c-finished', 'first byte': '--c-first',
};

/** The steps of a connection, on the scale of the slowest one. */
export function waterfall(steps, longest) {
  const said = steps.map(([name, us]) => `${name} ${us / 1000} ms`).join(', ');
  const bars = steps.map(([name, us]) => {
    const part = el('span', {});
    part.style.width = `${100 * us / longest}%`;
    part.style.setProperty('--of', `var(${STEPS[name]})`);
    return part;
  });
  return el('div', { class: 'steps', role: 'img', 'aria-label': said, title: said }, ...bars);
}

export const stepLegend = () => legend('l-steps', Object.entries(STEPS).map(([name, of]) => ({ name, colour: of })));
