// Elements of the page. Only this file makes elements, and it takes no HTML: text stays text.

const SVG = /^(svg|path|line|text|rect|circle|use)$/;
const kept = children => children.flat(2).filter(child => child || child === 0);

export const $ = id => document.getElementById(id);

/** Makes an element from `name.class class`. A plain object as first child has properties and listeners. */
export function h(tag, ...children) {
  const [name, css] = tag.split('.');
  const isSvg = SVG.test(name);
  const el = isSvg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (css) el.setAttribute('class', css);
  const props = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else if (!isSvg && key in el) el[key] = value;
    else el.setAttribute(key, value);
  }
  el.append(...kept(children));
  return el;
}

export const put = (el, ...children) => el.replaceChildren(...kept(children));

/** As `put`, for live parts: keeps the focus, and waits while text is selected in them. */
export function update(el, ...children) {
  const [selection, old] = [getSelection(), document.activeElement];
  if (!selection.isCollapsed && el.contains(selection.anchorNode)) return;
  const hadFocus = el !== old && el.contains(old);
  put(el, children);
  if (!hadFocus) return;
  const isTwin = one => one.textContent === old.textContent && one.href === old.href;
  [...el.querySelectorAll(old.tagName)].find(isTwin)?.focus({preventScroll: true});
}

/** Runs calls of which the newest counts: older answers, and those for a screen that was left, are dropped. */
export function newest(signal) {
  let count = 0;
  return async (call, show, fail) => {
    const mine = ++count;
    const [found, error] = await call.then(
      answer => [answer],
      why => [null, why]
    );
    if (mine === count && !signal.aborted) error ? fail(error) : show(found);
  };
}

export const icon = name => h('svg.ic', {viewBox: '0 0 20 20', 'aria-hidden': 'true'}, h('use', {href: `#i-${name}`}));
export const badge = (css, text) => h(`span.badge ${css}`, text);
export const empty = text => h('p.empty', text);
export const loading = () => h('p.empty loading', 'Loading ...');
export const problem = ({message}) => h('p.card err', {role: 'alert'}, message);
export const warning = (...text) => h('div.banner warn', h('span.dot'), h('div', text));
export const button = (css, text, onclick) => h(`button.${css}`, {type: 'button', onclick}, text);
export const address = (screen, params) => `#/${screen}${params ? `?${new URLSearchParams(params)}` : ''}`;
export const link = (screen, params, text) => h('a', {href: address(screen, params)}, text);
export const head = (title, about) => h('div.head', h('h1', title), h('p', about));
export const card = (title, side, ...body) =>
  h('section.card', h('header', h('h2', title), h('span.grow'), side), body);
export const field = (name, input) => h('label', name, input);
export const input = (name, value = '', props = {}) =>
  h('input.mono', {name, value, spellcheck: false, autocomplete: 'off', ...props});
export const form = (css, submit, ...body) =>
  h(
    `form.card ${css}`,
    {
      onsubmit(event) {
        event.preventDefault();
        submit();
      }
    },
    body
  );
export const facts = rows =>
  h(
    'dl',
    rows.filter(Boolean).map(([name, value, css = '']) => [h('dt', name), h(`dd.${css}`, value)])
  );
export const column = (name, css = 'r') => h(`th.${css}`, {scope: 'col'}, name);
export const table = (caption, columns, rows) =>
  h('table', h('caption.sr', caption), h('thead', h('tr', columns)), h('tbody', rows));

/** A bar of parts: pairs of a percentage and a class. */
export const meter = (...parts) =>
  h(
    'div.meter',
    parts.map(([percent, css = '']) => {
      const part = h(`i.${css}`);
      part.style.width = `${percent || 0}%`;
      return part;
    })
  );

/** A value with a button that copies it. */
export function copyable(text, shown = h('code.wrap', text)) {
  const select = () => {
    // Browsers close the clipboard to pages that came over plain HTTP from another machine.
    getSelection().selectAllChildren(shown);
    toast('Selected.');
  };
  const copy = () => navigator.clipboard?.writeText(text).then(() => toast('Copied.'), select) ?? select();
  return h('span.copy', shown, button('ghost icon', [icon('copy'), h('span.sr', `Copy ${text}`)], copy));
}

/** A moment in the reader's time zone, with UTC in the title. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  return h('time', {title: at.toUTCString()}, isToday ? at.toLocaleTimeString() : at.toLocaleString());
}

/** Has a screen reader say something. */
export const say = text => {
  $('say').textContent = text;
};

let fading;
/** Shows a sentence for some seconds. */
export function toast(text) {
  $('toast').textContent = text;
  clearTimeout(fading);
  if (text) fading = setTimeout(toast, 6000, '');
}

/** Asks in a dialog. Resolves with the data of its form, or with nothing. */
export function ask(title, yes, css, ...body) {
  const dialog = $('dlg');
  const inner = dialog.firstElementChild;
  put(
    inner,
    h('h1', title),
    body,
    h(
      'div.row',
      button('', 'Cancel', () => dialog.close()),
      h(`button.${css}`, {value: 'yes'}, yes)
    )
  );
  Object.assign(dialog, {ariaLabel: title, returnValue: ''}).showModal();
  return new Promise(resolve => {
    dialog.onclose = () => resolve(dialog.returnValue && new FormData(inner));
  });
}
