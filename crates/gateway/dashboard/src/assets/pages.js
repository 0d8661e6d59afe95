// Pages: the choice of one page, and the distributions of its figures. Loaded when visits are stored.

import { bar, byId, count, el, share, table } from './parts.js';
import { value } from './lines.js';
import { visitors } from './visitors.js';

const NAMES = { ttfb: 'first byte (TTFB)', lcp: 'largest paint (LCP)', inp: 'interaction (INP)', cls: 'layout shift (CLS)', fcp: 'first paint (FCP)' };
const OTHER = 'other';

/** Elements that exist from the first figures on. */
function made() {
  if (byId('v-page')) return;
  const select = el('select', { id: 'v-page' }, el('option', { value: '' }, 'all pages'));
  select.addEventListener('change', visitors);
  byId('v-host').closest('label').after(el('label', {}, 'page ', select));
  const region = (id, label) => el('div', { class: 'scroll tall', tabindex: '0', role: 'region', 'aria-label': label }, el('table', { id }));
  byId('v-vitals').after(region('v-spread', 'Distributions'), region('v-pages', 'Pages'));
  for (const id of ['v-pages', 'v-pairs']) {
    byId(id).addEventListener('click', (event) => {
      const button = event.target.closest('button');
      if (button) choose(button.value);
    });
  }
  byId('v-lines').addEventListener('pick', (event) => {
    if (event.detail.dimension === 'page') choose(event.detail.name);
  });
  // Another host has other pages.
  byId('v-host').addEventListener('change', () => { select.value = ''; }, true);
}

/** Shows the figures of one page; of all if the name is empty. */
function choose(name) {
  if (name === OTHER) return;
  const select = byId('v-page');
  if (![...select.options].some((option) => option.value === name)) select.append(el('option', { value: name }, name));
  select.value = name;
  visitors();
  if (name) byId('h-visitors').scrollIntoView();
}

export const button = (name) => (name === OTHER ? name : el('button', { type: 'button', value: name, 'aria-label': `Figures of ${name}` }, name));

/** The pages to choose from. While one is chosen, the figures name no others, and the list stays. */
function options(values) {
  const select = byId('v-page');
  if (select.value || document.activeElement === select) return;
  const names = values.map((one) => one.name).filter((name) => name !== OTHER);
  select.replaceChildren(el('option', { value: '' }, 'all pages'), ...names.map((name) => el('option', { value: name }, name)));
}

/** Classes of a metric as shares: up to the good threshold, up to the poor one, above it. */
function spread(of) {
  const all = of.visits.reduce((sum, one) => sum + one, 0);
  const part = (from, to) => of.visits.slice(from, to).reduce((sum, one) => sum + one, 0);
  const rated = (number) => el('span', {}, bar(all ? number / all : 0), `${share(number, all)} %`);
  const edges = of.visits.map((visits, index) => {
    const to = of.bounds[index];
    return `${to === undefined ? `above ${value(of.metric, of.bounds.at(-1))}` : `to ${value(of.metric, to)}`}: ${count(visits)}`;
  });
  return [NAMES[of.metric] || of.metric, count(all), value(of.metric, of.p75), rated(part(0, 4)), rated(part(4, 6)), rated(part(6)), edges.join('; ')];
}

export function pages(found) {
  made();
  const cut = ((found.cuts || {}).dimensions || []).find((one) => one.dimension === 'page') || { values: [] };
  const chosen = byId('v-page').value;
  options(cut.values);
  table('v-spread', `Distribution of the visits${chosen ? ` of ${chosen}` : ''}`,
    [['of', 'w'], ['visits', 'n'], ['p75', 'n'], ['good', 'n'], ['needs work', 'n'], ['poor', 'n'], ['visits by class', 'long wide']],
    (found.distributions || []).map(spread), 'No visit in this time.');
  table('v-pages', 'Pages, with the median of the chosen metric', [['page', 'long'], ['visits', 'n'], ['share', 'n wide'], ['median', 'n']],
    cut.values.map((one) => [button(one.name), count(one.visits), `${share(one.visits, found.cuts.visits)} %`, one.median ? value(found.cuts.metric, one.median.value) : 'too few']),
    'No visit in this time.');
}
