'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const HEIGHT = 28, $ = id => document.getElementById(id);
const ms = us => us === null ? '' : us < 1e4 ? (us / 1e3).toFixed(2) + ' ms' : us < 1e6 ? (us / 1e3).toFixed(0) + ' ms' : (us / 1e6).toFixed(2) + ' s';
const element = (name, text, parent, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
};
// A connection is [number, client, server, name, begin, duration, round trip, [network, server, client, waiting], retransmissions,
// end, finding]; times are microseconds.
const columns = [['#', c => c[0]], ['client', c => c[1]], ['name or server', c => c[3] || c[2]], ['duration', c => c[5]], ['round trip', c => c[6] ?? -1],
  ['time', c => c[7][0] + c[7][1] + c[7][2]], ['resent', c => c[8]], ['finding', c => c[10]]];
let shown = data.connections, sorted = 5, falling = true, chosen = null;

function heads() {
  const row = $('heads');
  row.replaceChildren();
  columns.forEach(([name], index) => {
    const button = element('button', name + (index === sorted ? (falling ? ' ▾' : ' ▴') : ''), row);
    if (index === sorted) button.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
    button.onclick = () => { falling = sorted === index ? !falling : index > 2; sorted = index; arrange(); };
  });
}

function arrange() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean), key = columns[sorted][1];
  shown = data.connections.filter(c => { const text = ['#' + c[0], c[1], c[2], c[3], c[9], c[10]].join(' ').toLowerCase(); return words.every(word => text.includes(word)); });
  shown.sort((a, b) => { const [x, y] = [key(a), key(b)]; return (x < y ? -1 : x > y ? 1 : a[0] - b[0]) * (falling ? -1 : 1); });
  heads();
  $('count').textContent = `${shown.length.toLocaleString('en')} of ${data.connections.length.toLocaleString('en')}`;
  $('list').scrollTop = 0;
  $('list').style.height = Math.min(352, Math.max(1, shown.length) * HEIGHT + 20) + 'px';
  draw();
}

// Only the visible rows are in the document.
function draw() {
  const list = $('list'), inside = list.firstElementChild, first = Math.floor(list.scrollTop / HEIGHT);
  inside.style.height = shown.length * HEIGHT + 'px';
  inside.replaceChildren();
  shown.slice(first, first + Math.ceil(list.clientHeight / HEIGHT) + 1).forEach((c, index) => {
    const row = element('div', undefined, inside, 'row' + (c === chosen ? ' on' : ''));
    row.style.top = (first + index) * HEIGHT + 'px';
    [c[0], c[1], c[3] || c[2], ms(c[5]), ms(c[6])].forEach(text => element('span', text, row));
    split(row, c[7]);
    [c[8] || '', c[10]].forEach(text => element('span', text, row));
    row.title = c[10];
    row.onclick = () => choose(c);
  });
}

function split(parent, parts) {
  const bar = element('div', undefined, parent, 'split'), all = parts.reduce((sum, part) => sum + part, 0) || 1;
  parts.slice(0, 3).forEach(part => { element('i', undefined, bar).style.width = part / all * 100 + '%'; });
  bar.title = ['network', 'server', 'client', 'waiting'].map((name, index) => `${name} ${ms(parts[index])}`).join(', ');
}

function choose(c) {
  chosen = c;
  location.hash = c[0];
  draw();
  const box = $('detail'), detail = data.details[c[0]];
  box.replaceChildren();
  box.hidden = false;
  element('h2', `Connection ${c[0]}: ${c[1]} → ${c[2]}${c[3] ? ', ' + c[3] : ''}, ${c[9]}`, box);
  element('p', c[10], box);
  split(box, c[7]);
  if (!detail) {
    element('p', 'Packets are in this page for the connections with the most lost time only (--connections).', box, 'note');
    return;
  }
  plots(box, detail, c);
  detail.records.forEach(text => element('p', text, box, 'note'));
  if (detail.requests.length) requests(box, detail.requests, c);
  ladder(box, detail, c);
}

// A packet is [number, microseconds, from the server, offset, bytes, acknowledged offset, window, in flight, round trip, flags, label].
function plots(box, detail, c) {
  const packets = detail.packets, sent = [0, 0];
  packets.forEach(p => { sent[p[2]] += p[4]; });
  const from = sent[1] >= sent[0] ? 1 : 0, own = packets.filter(p => p[2] === from), other = packets.filter(p => p[2] !== from);
  const side = from ? 'server' : 'client', most = Math.max(1, ...packets.map(p => p[1]));
  const range = { from: 0, to: most, most }, all = [];
  const add = (title, paint) => {
    const plot = element('div', undefined, box, 'plot');
    element('p', title, plot);
    const canvas = element('canvas', undefined, plot);
    all.push(() => draw1(canvas, range, paint));
    zoom(canvas, range, () => all.forEach(one => one()));
  };
  element('h2', 'Over time', box);
  element('p', 'Wheel: zoom. Drag: move. Double click: the whole time. The plots move together.', box, 'note');
  add(`Sequence numbers of the ${side}: ┃ segment (red: sent again), lower line: acknowledged, upper line: receive window, shaded: zero window`, {
    height: 260, units: SIZES, closed: zeroWindows(other, most),
    lines: [{ colour: '--c1', step: true, points: other.filter(p => p[5] !== null).map(p => [p[1], p[5]]) },
      { colour: '--c6', step: true, points: other.filter(p => p[5] !== null && p[6] !== null).map(p => [p[1], p[5] + p[6]]), free: true }],
    bars: own.filter(p => p[4]).map(p => [p[1], p[3], p[3] + p[4], /retransmission/.test(p[9]) ? '--c4' : /order/.test(p[9]) ? '--c2' : '--c5']),
  });
  const width = Math.max(most / 200, 1), bins = [];
  own.forEach(p => { const bin = Math.floor(p[1] / width); bins[bin] = (bins[bin] || 0) + p[4]; });
  const rates = Array.from({ length: Math.ceil(most / width) + 1 }, (_, index) => [index * width, (bins[index] || 0) * 8 / width]);
  add(`Throughput of the ${side}, bits per microsecond (Mbit/s), with repeated bytes`, { height: 130, units: NUMBERS, closed: zeroWindows(other, most), lines: [{ colour: '--c5', step: true, points: rates }] });
  add('Bytes in flight', { height: 130, units: SIZES, closed: zeroWindows(other, most), lines: [{ colour: '--c3', step: true, points: own.filter(p => p[7] !== null).map(p => [p[1], p[7]]) }] });
  add('Round trips between the place of the recording and each side', { height: 130, units: TIMES,
    lines: [0, 1].map(who => ({ colour: who ? '--c2' : '--c1', points: packets.filter(p => p[2] === who && p[8] !== null).map(p => [p[1], p[8]]), dots: true })) });
  all.forEach(one => one());
  window.onresize = () => all.forEach(one => one());
}

// Round ticks between two values: 1, 2 or 5 times a power of ten of the unit that fits the higher one.
function ticks(low, high, count, units) {
  const [size, name] = units.findLast(unit => unit[0] <= high) ?? units[0], raw = (high - low || high || 1) / count / size;
  const power = 10 ** Math.floor(Math.log10(raw)), step = power * [1, 2, 5, 10].find(factor => factor * power >= raw * .999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), found = [];
  for (let at = Math.ceil(low / size / step - 1e-9); at * step * size <= high * (1 + 1e-9); at++)
    found.push([at * step * size, (at * step).toFixed(digits) + name]);
  return found;
}

const TIMES = [[1, ' µs'], [1e3, ' ms'], [1e6, ' s']], SIZES = [[1, ' B'], [1024, ' KiB'], [1048576, ' MiB']], NUMBERS = [[1, '']];
const bytes = value => value < 1e4 ? value.toFixed(0) + ' B' : value < 1e7 ? (value / 1024).toFixed(0) + ' KiB' : (value / 1048576).toFixed(1) + ' MiB';

function draw1(canvas, range, paint) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = paint.height, left = 70, bottom = height - 20;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + 'px';
  const c = canvas.getContext('2d'), style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name);
  c.scale(ratio, ratio);
  const visible = x => x >= range.from && x <= range.to;
  const values = [...paint.lines.filter(line => !line.free).flatMap(line => line.points.filter(p => visible(p[0])).map(p => p[1])),
    ...(paint.bars || []).filter(b => visible(b[0])).flatMap(b => [b[1], b[2]])];
  const high = values.reduce((a, b) => Math.max(a, b), 0), low = paint.bars ? values.reduce((a, b) => Math.min(a, b), high) : 0, span = high - low || 1;
  const x = at => left + (at - range.from) / (range.to - range.from) * (width - left - 10), y = v => bottom - (v - low) / span * (bottom - 12);
  c.font = '12px system-ui';
  c.textAlign = 'right';
  for (const [v, text] of ticks(low, low + span, 5, paint.units)) {
    c.strokeStyle = colour('--line');
    c.beginPath(); c.moveTo(left, y(v)); c.lineTo(width - 10, y(v)); c.stroke();
    c.fillStyle = colour('--soft');
    c.fillText(text, left - 6, y(v) + 4);
  }
  c.textAlign = 'center';
  for (const [at, text] of ticks(range.from, range.to, 7, TIMES)) c.fillText(text, Math.min(Math.max(x(at), left + 10), width - 30), height - 4);
  c.save();
  c.beginPath(); c.rect(left, 4, width - left - 10, bottom - 3); c.clip();
  for (const [begin, end] of paint.closed || []) {
    c.globalAlpha = .15;
    c.fillStyle = colour('--c4');
    c.fillRect(x(begin), 4, Math.max(1, x(end) - x(begin)), bottom - 4);
    c.globalAlpha = 1;
  }
  for (const line of paint.lines) {
    c.strokeStyle = c.fillStyle = colour(line.colour);
    c.beginPath();
    let before = null;
    for (const [at, v] of line.points) {
      if (line.dots) { c.fillRect(x(at) - 1.5, y(v) - 1.5, 3, 3); continue; }
      if (before === null) c.moveTo(x(at), y(v));
      else { if (line.step) c.lineTo(x(at), y(before)); c.lineTo(x(at), y(v)); }
      before = v;
    }
    c.stroke();
  }
  for (const [at, begin, end, name] of paint.bars || []) {
    c.strokeStyle = colour(name);
    c.lineWidth = name === '--c5' ? 1.5 : 3;
    c.beginPath(); c.moveTo(x(at), y(begin)); c.lineTo(x(at), Math.min(y(end), y(begin) - 1.5)); c.stroke();
  }
  c.restore();
}

function zoom(canvas, range, changed) {
  const at = event => range.from + Math.max(0, event.offsetX - 70) / (canvas.clientWidth - 80) * (range.to - range.from);
  const set = (from, width) => {
    range.from = Math.min(Math.max(0, from), range.most - width);
    range.to = range.from + width;
    changed();
  };
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    const place = at(event), width = Math.min(range.most, Math.max(10, (range.to - range.from) * (event.deltaY < 0 ? .8 : 1.25)));
    set(place - (place - range.from) / (range.to - range.from) * width, width);
  }, { passive: false });
  canvas.onpointerdown = event => canvas.setPointerCapture(event.pointerId);
  canvas.onpointermove = event => { if (event.buttons) set(range.from - event.movementX / (canvas.clientWidth - 80) * (range.to - range.from), range.to - range.from); };
  canvas.ondblclick = () => set(0, range.most);
}

// Times from a packet that closes the receive window to the one that opens it.
function zeroWindows(packets, most) {
  const found = [];
  let begin = null;
  for (const p of packets) {
    const isZero = p[5] !== null && p[6] === 0 && !/RST/.test(p[10]);
    if (isZero && begin === null) begin = p[1];
    if (!isZero && begin !== null) { found.push([begin, p[1]]); begin = null; }
  }
  if (begin !== null) found.push([begin, most]);
  return found;
}

const svg = (name, attributes, parent, text) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
};

// A request is [stream, method and path, status, begin, response, end, bytes].
function requests(box, list) {
  element('h2', `Requests (${list.length})`, box);
  const first = Math.min(...list.map(r => r[3])), last = Math.max(first + 1, ...list.map(r => r[5] ?? r[4] ?? r[3]));
  const drawing = svg('svg', { viewBox: `0 0 1000 ${list.length * 18 + 20}`, role: 'img', 'aria-label': 'Requests over time' }, element('div', undefined, box, 'wide'));
  const x = at => 420 + (at - first) / (last - first) * 480;
  list.forEach((r, index) => {
    const y = index * 18 + 14, response = r[4] ?? r[5] ?? last, end = r[5] ?? response;
    svg('text', { x: 0, y, class: 't' }, drawing, `${r[0]}  ${r[1].length > 48 ? r[1].slice(0, 47) + '…' : r[1]}`);
    svg('text', { x: 410, y, class: 't e' }, drawing, `${r[2]}  ${bytes(r[6])}`);
    svg('rect', { x: x(r[3]), y: y - 9, width: Math.max(1, x(response) - x(r[3])), height: 10, fill: 'var(--c2)' }, drawing);
    svg('rect', { x: x(response), y: y - 9, width: Math.max(1, x(end) - x(response)), height: 10, fill: 'var(--c5)' }, drawing);
    svg('text', { x: 995, y, class: 't e' }, drawing, ms(end - r[3]));
  });
  element('p', 'Orange: until the head of the response. Blue: until its end.', box, 'note');
}

function ladder(box, detail, c) {
  element('h2', `Packets (${detail.packets.length})`, box);
  const frame = element('div', undefined, box), rows = [...detail.packets, ...detail.events].sort((a, b) => (a.length > 2 ? a[1] : a[0]) - (b.length > 2 ? b[1] : b[0]));
  frame.id = 'ladder';
  const drawing = svg('svg', { viewBox: `0 0 1000 ${rows.length * 20 + 30}`, role: 'img', 'aria-label': 'Packets between client and server' }, frame);
  svg('text', { x: 190, y: 14, class: 'soft' }, drawing, 'client ' + c[1]);
  svg('text', { x: 990, y: 14, class: 'soft', 'text-anchor': 'end' }, drawing, 'server ' + c[2]);
  svg('path', { d: `M190 20V${rows.length * 20 + 30}M990 20V${rows.length * 20 + 30}` }, drawing);
  rows.forEach((p, index) => {
    const y = index * 20 + 38;
    // An event of a record is [microseconds, text].
    if (p.length === 2) {
      svg('text', { x: 170, y, class: 'soft', 'text-anchor': 'end' }, drawing, (p[0] / 1e3).toFixed(3) + ' ms');
      svg('text', { x: 590, y, 'text-anchor': 'middle', class: 'soft' }, drawing, p[1]);
      return;
    }
    const bad = /retransmission|lost|order|zero|full/.test(p[9]) ? 'bad' : 'soft';
    svg('text', { x: 60, y, class: 'soft', 'text-anchor': 'end' }, drawing, p[0]);
    svg('text', { x: 170, y, class: 'soft', 'text-anchor': 'end' }, drawing, (p[1] / 1e3).toFixed(3) + ' ms');
    svg('path', { d: p[2] ? `M990 ${y}H196m8 -4l-8 4l8 4` : `M190 ${y}H984m-8 -4l8 4l-8 4`, class: bad === 'bad' ? 'bad' : '' }, drawing);
    svg('text', { x: 590, y: y - 3, 'text-anchor': 'middle', class: bad === 'bad' ? 'bad' : '' }, drawing, p[10]);
  });
  if (detail.omitted) element('p', `Later packets are not in this page.`, box, 'note');
}

$('filter').oninput = arrange;
$('list').onscroll = () => { $('heads').style.marginLeft = -$('list').scrollLeft + 'px'; draw(); };
arrange();
const wanted = Number(location.hash.slice(1)), at = data.connections.find(c => location.hash && c[0] === wanted) || shown.find(c => data.details[c[0]]);
if (at) choose(at);
