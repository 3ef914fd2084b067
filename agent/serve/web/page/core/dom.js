// Elements of the page. All text goes through text nodes, so markup in names stays text.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Returns an element. Attributes: `class`, `dataset` (an object), `on…` functions as listeners,
 * properties for `value`, `checked`, `disabled`, and `open`; false, null, and undefined are left out,
 * true gives an empty attribute. Children: nodes, strings, numbers, nested lists; null and false are
 * left out.
 */
export function h(tag, attrs, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

/** Returns an SVG element. Otherwise like {@link h}. */
export function svg(tag, attrs, ...children) {
  return fill(document.createElementNS(SVG, tag), attrs, children);
}

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'open', 'indeterminate', 'readOnly']);

function fill(el, attrs, children) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false && !PROPERTIES.has(name)) continue;
    if (typeof value === 'function') el.addEventListener(name.slice(2), value);
    else if (name === 'dataset') Object.assign(el.dataset, value);
    else if (PROPERTIES.has(name)) el[name] = value;
    else el.setAttribute(name, value === true ? '' : value);
  }
  append(el, children);
  return el;
}

/** Appends children as {@link h} does. */
export function append(el, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the children of an element. */
export function replace(el, ...children) {
  const part = document.createDocumentFragment();
  append(part, children);
  el.replaceChildren(part);
  return el;
}

const CONTROLS = 'a[href], button, input, select, textarea, summary, [tabindex]';

const labelOf = e => [e.tagName, e.getAttribute('href'), e.getAttribute('aria-label') ?? e.textContent].join('\n');

const keyOf = details => details.dataset.key || details.firstElementChild?.textContent;

/**
 * Replaces the children of an element so that a live update does not move a keyboard user: the focus
 * goes to the control with the same `id` or `data-key`, or to one with the same text. A text field keeps
 * its selection, and details with the same `data-key` or summary stay open.
 */
export function refresh(el, ...children) {
  const active = el.contains(document.activeElement) ? document.activeElement : null;
  const at = active ? [...el.querySelectorAll(CONTROLS)].indexOf(active) : -1;
  const selection = active && 'selectionStart' in active ? [active.selectionStart, active.selectionEnd] : null;
  const opened = new Set([...el.querySelectorAll('details[open]')].map(keyOf));
  const scroll = el.scrollTop;
  replace(el, ...children);
  el.scrollTop = scroll;
  for (const d of opened.size ? el.querySelectorAll('details') : []) if (opened.has(keyOf(d))) d.open = true;
  if (!active || active === el || el.contains(active)) return el;
  const {id} = active, {key} = active.dataset;
  const next = id && el.querySelector('#' + CSS.escape(id)) ||
    key && el.querySelector(`[data-key="${CSS.escape(key)}"]`) || alike(active, [...el.querySelectorAll(CONTROLS)], at);
  if (!next) return el;
  next.focus({preventScroll: true});
  if (selection && selection[0] !== null && next.setSelectionRange) next.setSelectionRange(...selection);
  return el;
}

// The control with the same text, best at the same place.
function alike(old, list, at) {
  const label = labelOf(old);
  return list[at] && labelOf(list[at]) === label ? list[at] : list.find(e => labelOf(e) === label);
}

/** The most characters of a name that are shown at once. */
export const LONGEST = 80;

/**
 * Returns a name of the mesh as an isolated text, so that marks of direction do not reorder the text
 * around it. A long name is cut in the middle, and has the whole one as its title.
 */
export function name(text, longest = LONGEST) {
  text = visible(String(text ?? ''));
  if (text.length <= longest) return h('bdi', null, text);
  const half = Math.floor((longest - 1) / 2);
  return h('bdi', {title: text.slice(0, 2000)}, `${text.slice(0, half)}…${text.slice(-half)}`);
}

/** Returns a text with control characters and marks of direction made visible. */
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
