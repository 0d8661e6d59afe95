(() => {
const p = performance, d = document, n = p.getEntriesByType("navigation")[0];
if (!n || navigator.globalPrivacyControl) return;
const hidden = d.hidden && !d.prerendering;
const page = () => location.pathname + (/^#!?\//.test(location.hash) ? location.hash : "");
const url = () => page() + location.search;
const watched = [], views = [];
let full, last = url();
const begin = (kind, at) => {
  views.push({ kind, at, page: page().slice(0, 250), before: kind && p.interactionCount || 0, cls: 0, sum: 0, acts: {} });
};
begin(0, 0);
p.addEventListener("resourcetimingbufferfull", () => { full = 1; });
const watch = (type, take, more) => {
  if (!PerformanceObserver.supportedEntryTypes.includes(type)) return;
  const each = e => {
    const v = views.findLast(v => v.at <= e.startTime);
    if (v) take(e, v, e.startTime);
  };
  const o = new PerformanceObserver(l => l.getEntries().forEach(each));
  o.observe({ type, buffered: true, ...more });
  return watched.push([o, each]);
};
watch("paint", (e, v, at) => { if (!v.kind && e.name == "first-contentful-paint") v.fcp = at; });
watch("largest-contentful-paint", (e, v, at) => { if (!v.kind) v.lcp = at; });
const seen = watch("layout-shift", (e, v, at) => {
  if (e.hadRecentInput) return;
  if (!v.sum || at - v.last > 1e3 || at - v.first > 5e3) { v.sum = 0; v.first = at; }
  v.sum += e.value;
  v.last = at;
  v.cls = Math.max(v.cls, v.sum);
});
const act = (e, v) => {
  const id = e.interactionId;
  if (id || e.entryType == "first-input") v.acts[id] = Math.max(v.acts[id] || 0, e.duration);
};
watch("first-input", act);
watch("event", act, { durationThreshold: 40 });
const send = (keep, ends) => {
  if (d.prerendering) return;
  watched.forEach(([o, each]) => o.takeRecords().forEach(each));
  const own = (n.serverTiming || []).find(e => e.name == "visit");
  const ended = views.splice(0, views.length - keep);
  if (!own || !ended[0] || n.workerStart || !n.transferSize) return;
  const u = new URLSearchParams({ id: own.description });
  const put = (k, v, from = 0) => { if (v >= 0) u.append(k, +Math.max(0, v - from).toFixed(k == "cls" ? 4 : 1)); };
  ended.forEach((v, i) => {
    const a = v.kind ? 0 : n.activationStart || 0;
    if (v.kind) {
      u.append("view", v.kind);
      u.append("page", v.page);
      if (v.fcp) put("ttfb", 0);
    } else {
      const f = n.finalResponseHeadersStart || n.responseStart, s = n.secureConnectionStart;
      const opened = new Set(), all = p.getEntriesByType("resource"), by = { h1: 0, h2: 0, h3: 0, other: 0 };
      let bytes = 0;
      [n, ...all].filter(e => e.name.startsWith(location.origin + "/")).forEach(e => {
        const q = e.nextHopProtocol;
        bytes += e.transferSize || 0;
        if (e.connectEnd > e.connectStart) opened.add(e.connectStart + "-" + e.connectEnd);
        if (q && e != n) by[q in by ? q : /^http.1/.test(q) ? "h1" : "other"]++;
      });
      u.append("nav", a ? "prerender" : n.type);
      if (n.connectEnd > n.connectStart) {
        put("dns", n.domainLookupEnd - n.domainLookupStart);
        put("connect", (s || n.connectEnd) - n.connectStart);
        if (s) put("tls", n.connectEnd - s);
      } else put("held", n.requestStart - n.fetchStart);
      put("wait", f - n.requestStart);
      put("ttfb", f, a);
      put("load", n.loadEventEnd || -1, a);
      if (!full && all.length < 250) {
        put("connections", opened.size);
        put("bytes", bytes);
      }
      for (const k in by) put(k, by[k]);
    }
    if (v.kind || !hidden) {
      put("fcp", v.fcp, a);
      put("lcp", v.lcp, a);
      if (seen) put("cls", v.cls);
    }
    const next = ended[i + 1] || views[0] || { before: p.interactionCount || 0 };
    const acts = Object.values(v.acts).sort((a, b) => b - a);
    put("inp", acts[Math.min(acts.length - 1, (next.before - v.before) / 50 | 0)]);
  });
  if (ends) u.append("end", 1);
  navigator.sendBeacon(location.origin + "/.brisk/beacon", u);
};
const moved = replaced => {
  const same = url() == last;
  last = url();
  if (same || replaced || d.hidden) return;
  begin("soft", p.now());
  if (views.length > 20) send(2);
};
if (window.navigation) navigation.addEventListener("currententrychange", e => moved(e.navigationType == "replace"));
else {
  const push = history.pushState;
  history.pushState = function () {
    push.apply(this, arguments);
    moved();
  };
  addEventListener("popstate", () => moved());
}
addEventListener("pageshow", e => {
  if (!e.persisted) return;
  last = url();
  begin("back_forward_cache", e.timeStamp);
  const v = views.at(-1), frame = requestAnimationFrame;
  frame(() => frame(() => { v.fcp = v.lcp = p.now() - v.at; }));
});
addEventListener("visibilitychange", () => { if (d.hidden) send(0); }, true);
addEventListener("pagehide", e => send(0, !e.persisted));
})();
