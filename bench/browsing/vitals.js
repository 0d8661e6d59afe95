// Clicks block for a time that depends on the visit.
const entries = [], shown = document.getElementById('main'), number = +new URLSearchParams(location.search).get('visit');
let views = [['load', 0]], paint = null;
const raw = e => [e.entryType, e.name, e.startTime, e.duration, e.interactionId || 0, e.value || 0, e.hadRecentInput ? 1 : 0];
const take = list => entries.push(...list.map(raw));
const types = ['paint', 'largest-contentful-paint', 'layout-shift', 'first-input', 'event']
  .filter(type => PerformanceObserver.supportedEntryTypes.includes(type));
const observers = types.map(type => {
  const observer = new PerformanceObserver(list => take(list.getEntries()));
  observer.observe({ type, buffered: true, ...(type == 'event' ? { durationThreshold: 40 } : {}) });
  return observer;
});
const frames = done => requestAnimationFrame(() => requestAnimationFrame(done));
const pause = ms => new Promise(done => setTimeout(done, ms));
const block = ms => { const until = performance.now() + ms; while (performance.now() < until); };
const shift = height => {
  const box = document.createElement('div');
  box.style.height = `${height}px`;
  shown.prepend(box);
};
addEventListener('pageshow', async event => {
  if (!event.persisted) return;
  views = [['back_forward_cache', event.timeStamp]];
  entries.length = 0;
  frames(() => { paint = performance.now() - event.timeStamp; document.title = 'returned'; });
});
addEventListener('load', async () => {
  await pause(50);
  const words = document.createElement('p');
  words.style.font = '60px sans-serif';
  words.textContent = 'the largest text of the page comes late';
  shown.append(words);
  frames(async () => {
    await pause(50);
    shift(20 + number % 50);
    frames(() => setTimeout(() => { document.title = 'ready'; }, 50));
  });
});
document.getElementById('click').addEventListener('click', () => {
  block(50 + number * 7 % 90);
  frames(() => setTimeout(() => { document.title = 'clicked'; }, 100));
});
document.getElementById('go').addEventListener('click', () => {
  block(20);
  history.pushState({}, '', `/next?visit=${number}`);
  views.push(['soft', performance.now()]);
  frames(async () => {
    await pause(700);
    shift(10 + number % 40);
    frames(() => setTimeout(() => { document.title = 'gone'; }, 50));
  });
});
addEventListener('visibilitychange', () => {
  if (document.visibilityState != 'hidden') return;
  observers.forEach(observer => take(observer.takeRecords()));
  const { responseStart, finalResponseHeadersStart, loadEventEnd } = performance.getEntriesByType('navigation')[0];
  const own = { number, types, views, entries, paint, ttfb: finalResponseHeadersStart || responseStart, load: loadEventEnd };
  navigator.sendBeacon('/own', JSON.stringify(own));
  views = [];
  entries.length = 0;
});
