// Rates over time: a chart for who sees it, and the same as a table.

import { byId, colour, clock, el, legend, rate, table } from './parts.js';

const SECONDS = 600;
/** Seconds on the axis at least. */
const LEAST = 120;
const ROWS = 12;

export class Chart {
  /** `series`: name, column of a row, colour. `format` writes a value; `top` is the end of the axis where it is fixed. */
  constructor(name, title, series, { format = rate, top } = {}) {
    Object.assign(this, { name, title, series, format, top, rows: [] });
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
    this.point();
    this.numbers();
  }

  /** A value as text. */
  text(value) {
    return value === null ? '–' : this.format(value);
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
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: {
        x: { time: true, range: () => this.window },
        y: { range: (plot, low, high) => [0, this.top || Math.max(1, (high || 0) * 1.1)] },
      },
      axes: [
        { ...axis, size: 26, space: 90, values: (plot, all) => all.map((at) => clock(at * 1000).slice(0, this.window[1] - this.window[0] > 300 ? 5 : 8)), incrs: [30, 60, 120, 300] },
        { ...axis, size: 56, space: 34, values: (plot, all) => all.map((at) => (this.format !== rate && at ? this.format(at).replace('.0 ', ' ') : at >= 10000 ? `${at / 1000}k` : String(at))) },
      ],
      series: [{}, ...this.series.map(line)],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    }, data, this.host);
  }

  /** Where the pointer is, the legend has the values of that second. */
  point(index) {
    const row = this.rows[index] || this.rows.at(-1);
    legend(`l-${this.name}`, this.series.map((one) => ({ name: one.name, colour: one.colour, value: row && this.text(row[one.column]) })));
  }

  numbers() {
    if (!this.details.open) return;
    const rows = [];
    for (let end = this.rows.length; end > 0 && rows.length < ROWS; end -= 10) {
      const part = this.rows.slice(Math.max(0, end - 10), end);
      const mean = (column) => {
        const known = part.map((row) => row[column]).filter((value) => value !== null);
        return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      };
      rows.push([clock(part[0][0]), ...this.series.map((one) => this.text(mean(one.column)))]);
    }
    const columns = [['ten seconds from', 'w'], ...this.series.map((one) => [one.name, 'n'])];
    table(`n-${this.name}`, `${this.title}: mean of ten seconds`, columns, rows, 'Nothing yet.');
  }
}

/** An element of SVG. */
function drawing(tag, attributes) {
  const made = document.createElementNS(byId('logo').namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The line of a tile, from zero. The number above it says the last value. */
export function trend(id, values) {
  const tile = byId(id).closest('.tile');
  if (!tile.querySelector('svg')) {
    const svg = drawing('svg', { viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': true });
    svg.append(drawing('path', {}));
    tile.append(svg);
  }
  const most = Math.max(...values, 1e-9);
  const step = 100 / Math.max(1, values.length - 1);
  let drawn = '';
  let pen = 'M';
  values.forEach((value, index) => {
    if (value !== null) drawn += `${pen}${(index * step).toFixed(1)} ${(23 - 22 * value / most).toFixed(1)}`;
    pen = value === null ? 'M' : 'L';
  });
  tile.querySelector('path').setAttribute('d', drawn);
}

/** A bar for each minute, the present one last; the number of all is beside it. */
export function spark(counts) {
  const most = Math.max(1, ...counts);
  const said = `by minute, the present one last: ${counts.join(', ')}`;
  const svg = drawing('svg', { class: 'spark', viewBox: `0 0 ${counts.length * 6} 20`, role: 'img', 'aria-label': said });
  counts.forEach((value, index) => {
    const height = value ? Math.max(2, 20 * value / most) : 1;
    svg.append(drawing('rect', { x: index * 6, y: 20 - height, width: 5, height }));
  });
  return svg;
}

/** Steps are no verdicts: none has the colour of a failure. */
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
