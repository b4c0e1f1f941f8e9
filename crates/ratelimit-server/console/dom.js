// Elements of the page. Text always stays text: this is the only place that makes elements, and it takes no HTML.

const SVG = /^(svg|path|line|text|rect|circle|use)$/;

/** @type {(id: string) => any} */
export const $ = (id) => document.getElementById(id);

/**
 * Makes an element from `name.class class`. A first argument that is a plain object has properties and listeners.
 * @param {string} tag
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, ...children) {
  const [name, css] = tag.split('.');
  const isSvg = SVG.test(name);
  const el = isSvg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (css) el.setAttribute('class', css.trim());
  if (children[0]?.constructor === Object) {
    for (const [key, value] of Object.entries(children.shift())) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
      else if (!isSvg && key in el && key !== 'list') el[key] = value;
      else el.setAttribute(key, value);
    }
  }
  el.append(...kept(children));
  return el;
}

const kept = (children) => children.flat(2).filter((child) => child || child === 0);

/** Replaces the children of an element. */
export const put = (el, ...children) => el.replaceChildren(...kept(children));

/** As `put`, for what changes while one looks: keeps the focus, and waits while a part is selected. */
export function update(el, ...children) {
  const selection = getSelection();
  if (selection && !selection.isCollapsed && el.contains(selection.anchorNode)) return;
  const focused = /** @type {any} */ (document.activeElement);
  const hasFocus = el.contains(focused) && el !== focused;
  put(el, children);
  if (!hasFocus) return;
  const twin = [...el.querySelectorAll(focused.tagName)]
    .find((one) => one.textContent === focused.textContent && one.href === focused.href);
  twin?.focus({ preventScroll: true });
}

export const icon = (name) => h('svg.ic', { 'aria-hidden': 'true' }, h('use', { href: `#i-${name}` }));
export const badge = (css, text) => h(`span.badge ${css}`, text);
export const empty = (text) => h('p.empty', text);
export const problem = (text) => h('p.card err', { role: 'alert' }, text);
export const loading = () => h('p.empty loading', 'Loading ...');

export const query = (params) => String(new URLSearchParams(params));
export const address = (screen, params) => `#/${screen}${params ? `?${query(params)}` : ''}`;
export const link = (screen, params, ...text) => h('a', { href: address(screen, params) }, text);

/** A card with a heading, and something at its right. */
export const card = (title, side, ...body) =>
  h('section.card', h('header', h('h2', title), h('span.grow'), side), body);

/** The heading of a screen. */
export const head = (title, ...about) => h('div.head', h('h1', title), h('p', about));

export const field = (name, input, props = {}) => h('label', props, name, input);
export const input = (name, value, props) =>
  h('input.mono', { name, value, spellcheck: false, autocomplete: 'off', ...props });
export const form = (css, submit, ...body) =>
  h(`form.card ${css}`, { onsubmit(event) { event.preventDefault(); submit(); } }, body);

/** Names and values; a value may be an element. */
export const facts = (rows) =>
  h('dl', rows.filter(Boolean).map(([name, value, css = '']) => [h('dt', name), h(`dd.${css}`, value)]));

export const column = (name, css = 'r', props = {}) => h(`th.${css}`, { scope: 'col', ...props }, name);
export const table = (caption, columns, body) =>
  h('table', h('caption.sr', caption), h('thead', h('tr', columns)), body);

/** A bar that is filled by parts of a hundred: pairs of a class and a percentage. */
export function meter(...parts) {
  return h('div.meter', parts.map(([css, percent]) => {
    const part = h(`i.${css}`);
    part.style.width = `${Math.min(100, percent || 0)}%`;
    return part;
  }));
}

/** A value with a button that copies it. */
export function copyable(text, shown = h('code.wrap', text)) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast('Copied.');
    } catch {
      // The clipboard is closed to pages that came over plain HTTP from another machine.
      getSelection()?.selectAllChildren(shown);
      toast('Selected: copy it with the keyboard.');
    }
  };
  return h('span.copy', shown, h('button.ghost icon', { type: 'button', title: 'Copy', onclick: copy },
    icon('copy'), h('span.sr', `Copy ${text}`)));
}

/** A moment in the reader's time zone, and in UTC on hover. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  const text = isToday ? at.toLocaleTimeString() : at.toLocaleString();
  return h('time', { dateTime: at.toISOString(), title: `${at.toISOString().replace('T', ' ').slice(0, 19)} UTC` }, text);
}

/** Has a screen reader say something. */
export const say = (text) => { $('say').textContent = text; };

let fading;
/** Shows a sentence for some seconds. */
export function toast(text) {
  $('toast').textContent = text;
  clearTimeout(fading);
  fading = setTimeout(() => { $('toast').textContent = ''; }, 6000);
}

/** Asks in a dialog. Resolves with the data of its form, or with null. */
export function ask(title, yes, css, ...body) {
  const dialog = $('dlg');
  const inner = dialog.firstElementChild;
  const cancel = h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  put(inner, h('h1', title), body, h('div.row', cancel, h(`button.${css}`, { value: 'yes' }, yes)));
  dialog.ariaLabel = title;
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue ? new FormData(inner) : null);
  });
}
