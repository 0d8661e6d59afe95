(() => {
  const svg = document.documentElement, left = 8, width = 1184, letter = 6.7;
  const boxes = [...document.querySelectorAll('g.f')].map((group) => {
    const [rect, text] = ['rect', 'text'].map((tag) => group.querySelector(tag));
    const at = (name) => Number(rect.getAttribute(name));
    const title = group.querySelector('title').textContent;
    return { group, rect, text, x: at('x'), w: at('width'), y: at('y'), title, name: title.slice(0, title.lastIndexOf(' (')) };
  });
  const whole = boxes.reduce((all, box) => (box.w > all.w ? box : all), boxes[0]);
  const short = (name) => (/[< [\]]/.test(name) ? name : name.split('::').slice(-2).join('::'));
  const place = (box, x, w, faded) => {
    const shown = w >= 0.4;
    box.group.setAttribute('visibility', shown ? 'visible' : 'hidden');
    if (!shown) return;
    box.rect.setAttribute('x', x.toFixed(1));
    box.rect.setAttribute('width', w.toFixed(1));
    box.group.setAttribute('opacity', faded ? 0.5 : 1);
    box.text.setAttribute('x', (x + 3).toFixed(1));
    const letters = Math.max(0, Math.floor((w - 6) / letter));
    box.text.textContent = letters < 3 ? '' : short(box.name).slice(0, letters);
  };
  let zoomed = whole;
  const zoom = (to) => {
    zoomed = to;
    const scale = width / to.w, end = to.x + to.w;
    for (const box of boxes) {
      const inside = box.x >= to.x - 0.06 && box.x + box.w <= end + 0.06;
      if (inside && box.y <= to.y) place(box, left + (box.x - to.x) * scale, box.w * scale, false);
      else if (box.y > to.y && box.x <= to.x + 0.06 && box.x + box.w >= end - 0.06) place(box, left, width, true);
      else place(box, 0, 0, false);
    }
    reset.setAttribute('visibility', to === whole ? 'hidden' : 'visible');
  };
  const search = (text) => {
    const wanted = text.trim().toLowerCase();
    const found = wanted ? boxes.filter((box) => box.name.toLowerCase().includes(wanted)) : [];
    for (const box of boxes) {
      const was = box.rect.dataset.fill || box.rect.getAttribute('fill');
      box.rect.dataset.fill = was;
      box.rect.setAttribute('fill', found.includes(box) ? '#d63384' : was);
    }
    // A match above another match is a part of it.
    const lowest = [...found].sort((a, b) => b.y - a.y).reduce((all, box) => {
      const isPart = all.some((other) => box.x >= other.x - 0.06 && box.x + box.w <= other.x + other.w + 0.06);
      return isPart ? all : [...all, box];
    }, []);
    const share = (100 * lowest.reduce((sum, box) => sum + box.w, 0)) / whole.w;
    result.textContent = wanted ? `${found.length} boxes, ${share.toFixed(1)} % of the time` : '';
  };
  const make = (parent, space, tag, attributes) => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return parent.appendChild(made);
  };
  const own = 'http://www.w3.org/2000/svg', html = 'http://www.w3.org/1999/xhtml';
  const holder = make(svg, own, 'foreignObject', { x: 760, y: 2, width: 220, height: 26 });
  const input = make(holder, html, 'input', { type: 'search', placeholder: 'search functions', 'aria-label': 'search functions' });
  const result = make(svg, own, 'text', { x: 990, y: 20, 'aria-live': 'polite' });
  const reset = make(svg, own, 'text', { x: 990, y: 38, fill: '#0645ad', cursor: 'pointer', role: 'button', tabindex: 0 });
  reset.textContent = 'show all (Esc)';
  if (!whole) return;
  for (const box of boxes) {
    box.group.setAttribute('cursor', 'pointer');
    box.group.addEventListener('click', () => zoom(box));
  }
  input.addEventListener('input', () => search(input.value));
  reset.addEventListener('click', () => zoom(whole));
  reset.addEventListener('keydown', (event) => event.key === 'Enter' && zoom(whole));
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') zoomed === whole ? ((input.value = ''), search('')) : zoom(whole);
    if (event.key === '/' && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  zoom(whole);
})();
