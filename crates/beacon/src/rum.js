(() => {
const p = performance, d = document, n = p.getEntriesByType("navigation")[0];
if (!n || navigator.globalPrivacyControl) return;
const hidden = d.visibilityState == "hidden" && !d.prerendering;
let fcp, lcp, cls = 0, sum = 0, first = 0, last = 0, longest = [], sent, full;
const watched = [];
p.addEventListener("resourcetimingbufferfull", () => { full = 1; });
const watch = (type, take, more) => {
  try {
    const o = new PerformanceObserver(l => l.getEntries().forEach(take));
    o.observe({ type, buffered: true, ...more });
    watched.push([o, take]);
  } catch {}
};
watch("paint", e => { if (e.name == "first-contentful-paint") fcp = e.startTime; });
watch("largest-contentful-paint", e => { lcp = e.startTime; });
watch("layout-shift", e => {
  if (e.hadRecentInput) return;
  if (!sum || e.startTime - last > 1e3 || e.startTime - first > 5e3) { sum = 0; first = e.startTime; }
  sum += e.value;
  last = e.startTime;
  cls = Math.max(cls, sum);
});
const act = e => {
  if (!e.interactionId && e.entryType != "first-input") return;
  const same = longest.find(x => x[0] == e.interactionId);
  if (same) same[1] = Math.max(same[1], e.duration);
  else longest.push([e.interactionId, e.duration]);
  longest = longest.sort((a, b) => b[1] - a[1]).slice(0, 10);
};
watch("first-input", act);
watch("event", act, { durationThreshold: 40 });
const send = () => {
  if (sent || d.prerendering) return;
  sent = 1;
  const own = n.serverTiming && n.serverTiming.find(e => e.name == "visit");
  if (!own || n.workerStart || !n.transferSize) return;
  watched.forEach(([o, take]) => o.takeRecords().forEach(take));
  const a = n.activationStart || 0, f = n.finalResponseHeadersStart || n.responseStart, o = {};
  const put = (k, v) => { if (v >= 0) o[k] = +v.toFixed(k == "cls" ? 4 : 1); };
  const since = (k, v) => { if (v > 0) put(k, Math.max(0, v - a)); };
  let bytes = n.transferSize;
  const opened = new Set(), of = location.origin + "/", all = p.getEntriesByType("resource");
  const note = e => { if (e.connectEnd > e.connectStart) opened.add(e.connectStart + "-" + e.connectEnd); };
  const by = { h1: 0, h2: 0, h3: 0, other: 0 };
  all.filter(e => e.name.startsWith(of)).forEach(e => {
    bytes += e.transferSize || 0;
    note(e);
    const q = e.nextHopProtocol;
    if (q) by[q == "h2" || q == "h3" ? q : q.startsWith("http/1") ? "h1" : "other"]++;
  });
  note(n);
  if (n.connectEnd > n.connectStart) {
    const s = n.secureConnectionStart;
    put("dns", n.domainLookupEnd - n.domainLookupStart);
    put("connect", (s || n.connectEnd) - n.connectStart);
    if (s) put("tls", n.connectEnd - s);
  } else put("held", n.requestStart - n.fetchStart);
  put("wait", f - n.requestStart);
  since("ttfb", f);
  since("load", n.loadEventEnd);
  if (!hidden) {
    since("fcp", fcp);
    since("lcp", lcp);
    put("cls", cls);
  }
  if (longest[0]) put("inp", longest[Math.min(longest.length - 1, Math.floor((p.interactionCount || 0) / 50))][1]);
  if (!full && all.length < 250) {
    put("connections", opened.size);
    put("bytes", bytes);
  }
  const u = new URLSearchParams({ id: own.description, nav: a ? "prerender" : n.type, ...o, ...by });
  navigator.sendBeacon(location.origin + "/.brisk/beacon", u);
};
addEventListener("visibilitychange", () => { if (d.visibilityState == "hidden") send(); }, true);
addEventListener("pagehide", send, true);
})();
