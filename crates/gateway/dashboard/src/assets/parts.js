// Elements, numbers and requests. Whatever comes from the gateway becomes text here, never markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings are text. */
export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return made;
}

export function say(id, text) {
  const at = byId(id);
  if (at.textContent !== text) at.textContent = text;
}

/** Columns: [title, class]. A row is a list of cells; a cell is text or an element. One cell alone goes over all columns. */
export function table(id, caption, columns, rows, none) {
  const cell = (tag, index, content) => {
    const of = columns[index][1] || '';
    return el(tag, { class: of, scope: tag === 'th' ? 'col' : undefined }, content);
  };
  const head = el('thead', {}, el('tr', {}, ...columns.map(([title], index) => cell('th', index, title))));
  const body = el('tbody', {});
  const over = (content) => el('td', { colspan: columns.length }, content);
  for (const row of rows) body.append(el('tr', {}, ...(row.length === 1 ? row.map(over) : row.map((content, index) => cell('td', index, content)))));
  if (!rows.length) body.append(el('tr', { class: 'empty' }, el('td', { colspan: columns.length }, none)));
  const title = caption.hidden ? el('caption', {}, el('span', { class: 'hidden' }, caption.hidden)) : el('caption', {}, caption);
  const at = byId(id);
  const made = [title, head, body];
  // What says the same stays, and what is selected in it.
  if (at.childNodes.length === made.length && made.every((part, index) => part.isEqualNode(at.childNodes[index]))) return;
  at.replaceChildren(...made);
}

const whole = new Intl.NumberFormat('en');
export const count = (number) => whole.format(Math.round(number));

export function rate(number) {
  if (number === 0) return '0';
  if (number < 10) return number.toFixed(1);
  return count(number);
}

/** A time in microseconds. */
export function time(us) {
  if (us === null || us === undefined) return '–';
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e5) return `${(us / 1000).toFixed(us < 1e4 ? 2 : 1)} ms`;
  return us < 1e6 ? `${Math.round(us / 1000)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

export function share(part, all) {
  if (!all) return '–';
  const percent = 100 * part / all;
  return percent > 0 && percent < 10 ? percent.toFixed(1) : String(Math.round(percent));
}

export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
export const day = (ms) => new Date(ms).toISOString().slice(0, 10);

export const mark = (text, colour) => el('span', { class: `mark ${colour || ''}` }, text);

export function bar(part) {
  const filled = el('span', {});
  filled.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  return el('span', { class: 'bar', 'aria-hidden': 'true' }, filled);
}

/** JSON from the gateway. Who may not look any more gets the form again. */
export async function ask(path) {
  const answer = await fetch(path, { headers: { accept: 'application/json' } });
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** What is drawn in which colour; `values` are shown beside the names. */
export function legend(id, series) {
  byId(id).replaceChildren(...series.map(({ name, colour: of, value }) => {
    const entry = el('li', {}, value === undefined ? name : `${name} ${value}`);
    entry.style.setProperty('--of', `var(${of})`);
    return entry;
  }));
}
