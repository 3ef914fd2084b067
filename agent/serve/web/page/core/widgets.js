// Parts that views share.

import {append, h, name, refresh, replace} from './dom.js';
import {key, plural, utc, ago} from './format.js';
import {resource} from './route.js';

const PAUSE = 60; // times as long as a call takes, so that a page costs the agent little
const AHEAD = 4; // calls that may begin before the pauses of earlier ones are over
const LONGEST_PAUSE = 15000; // ms
const BURST = 40; // ms between an event and the call, so that events of one change are one call

/**
 * Calls a function soon after each burst of events, at most once per `every` ms, and never twice at a time. The
 * first calls follow their events at once. Under many events the calls take at most 1/60 of the time. `start` gets
 * the function that an event calls, and returns the function that ends this.
 */
export function live(start, f, every, signal) {
  let timer = 0, running = false, again = false, last = -Infinity, took = 0, paid = 0;
  const run = async () => {
    timer = 0;
    running = true;
    last = performance.now();
    try {
      await f();
    } catch (err) {
      if (err.name !== 'AbortError') console.warn(err.message); // the banner or the next event tells
    }
    running = false;
    took = performance.now() - last;
    paid = Math.max(paid, last) + PAUSE * took;
    if (again) {
      again = false;
      wake();
    }
  };
  const wake = () => {
    if (signal.aborted) return;
    if (running) again = true;
    else if (!timer) {
      const now = performance.now();
      const due = Math.max(last + every, Math.min(paid - AHEAD * PAUSE * took, last + LONGEST_PAUSE));
      timer = setTimeout(run, Math.max(BURST, due - now));
    }
  };
  const stop = start(wake);
  return () => {
    clearTimeout(timer);
    stop();
  };
}

/** Returns the head of a view: its title, a sentence, and controls at the right. */
export function head(title, sentence, ...controls) {
  return h('div', {class: 'head'}, h('div', null, h('h1', null, title), sentence && h('p', {class: 'quiet'}, sentence)),
    controls.length ? h('div', {class: 'controls'}, controls) : null);
}

/** Returns a section with a heading. Attributes go to the section. */
export function panel(title, attrs, ...children) {
  return h('section', {...attrs, class: `panel ${attrs?.class || ''}`}, h('h2', null, title), children);
}

/** Returns a state as a word with a color: ok, warn, bad, off, or info. */
export const badge = (state, text) => h('span', {class: `badge ${state}`}, text);

/** Returns what to do in an empty view: a sentence, and a command or other nodes. */
export function empty(sentence, ...more) {
  return h('div', {class: 'empty'}, h('p', null, sentence), more.map(m => typeof m === 'string' ? command(m) : m));
}

/** Returns a button that copies a text, or selects the element with it if copying is not permitted. */
export function copyButton(text, shown, what = text.slice(0, 200)) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      replace(button, 'Copied');
    } catch {
      replace(button, 'Select it'); // without permission for the clipboard
      getSelection().selectAllChildren(shown);
    }
    setTimeout(() => replace(button, 'Copy'), 1500);
  };
  const button = h('button', {type: 'button', class: 'copy', 'aria-label': `Copy: ${what}`, onclick: copy}, 'Copy');
  return button;
}

/** The most characters of a sentence or command that are shown at once. */
const SENTENCE = 600;

/** Returns a command with a button that copies it, also if it is too long to be shown whole. */
export function command(text) {
  const code = h('code', null, name(text, SENTENCE));
  return h('span', {class: 'command'}, code, copyButton(text, code));
}

/** Returns a text of several lines with a button that copies it. */
export function block(text, label) {
  const pre = h('pre', {tabindex: '0', 'aria-label': label}, text);
  return h('div', {class: 'block'}, pre, copyButton(text, pre, label));
}

/** Returns the description of a failed request, with a button that calls `retry` if there is one. */
export function failure(err, retry) {
  const status = err.status;
  const told = p => err.message === `${p.field}: ${p.reason}`;
  const list = (err.parameters || []).filter(p => !told(p)).map(p =>
    h('li', null, name([p.document, p.field].filter(Boolean).join(' '), SENTENCE), ': ', name(p.reason, SENTENCE)));
  return h('div', {class: 'notice bad', role: 'alert'},
    h('strong', null, name(err.title || 'The request failed')), ' ', name(err.message, SENTENCE),
    list.length ? h('ul', null, list) : null,
    status === 403 ? h('p', null, 'Your permissions: ', command('nearside access whoami')) : null,
    retry ? h('p', null, h('button', {type: 'button', onclick: () => retry()}, 'Try again')) : null);
}

/** Returns a time as an age that stays true, with the exact time in UTC as its title. */
export const when = text => h('time', {class: 'age', datetime: text, title: utc(text)}, ago(text));

/** Keeps the ages of the page true. */
export function startClock() {
  setInterval(() => {
    if (document.hidden) return;
    for (const el of document.querySelectorAll('time.age')) {
      const text = ago(el.dateTime);
      if (el.textContent !== text) el.firstChild.data = text; // no new node, so that a selection stays
    }
  }, 1000);
}

/** Returns the name of a resource as a link to its view. */
export function resourceLink(r, text = key(r)) {
  return h('a', {href: resource(r)}, name(text));
}

/** Returns a policy with its field: a link, and the path of the field. */
export function source(p) {
  return h('span', {class: 'source'}, resourceLink(p), p.field ? [' ', h('code', null, name(p.field))] : null);
}

/** The most rows of a table before "show more". */
export const ROWS = 100;

/**
 * Returns a table. Columns: `{title, cell(row), value(row)?, class?, sort?: false}`. A column with a
 * value can be sorted by a click. Options: `caption`, `empty` (node), `key(row)`, `most` (rows at
 * first), `href(row)` (the address of a row).
 */
export function table(columns, rows, {caption, empty: nothing, most = ROWS, key: keyOf} = {}) {
  if (!rows.length && nothing) return nothing;
  const state = {sort: -1, down: false, shown: most};
  const body = h('tbody');
  const foot = h('div', {class: 'more'});
  const heads = columns.map((c, i) => {
    const sortable = c.value && c.sort !== false;
    const label = sortable ? h('button', {type: 'button', class: 'sort', onclick: () => {
      state.down = state.sort === i && !state.down;
      state.sort = i;
      draw();
    }}, c.title) : c.title;
    return h('th', {scope: 'col', class: c.class}, label);
  });
  const draw = () => {
    const list = state.sort < 0 ? rows : rows.toSorted((a, b) => compare(columns[state.sort].value(a),
      columns[state.sort].value(b)) * (state.down ? -1 : 1));
    heads.forEach((th, i) => i === state.sort ? th.setAttribute('aria-sort', state.down ? 'descending' : 'ascending')
      : th.removeAttribute('aria-sort'));
    refresh(body, list.slice(0, state.shown).map(row => h('tr', {dataset: keyOf ? {key: keyOf(row)} : {}},
      columns.map((c, i) => h(i ? 'td' : 'th', {scope: i ? null : 'row', class: c.class, 'data-title': c.title},
        c.cell(row))))));
    const left = list.length - state.shown;
    replace(foot, left > 0 ? h('button', {type: 'button', onclick: () => {
      state.shown += Math.max(most, 500);
      draw();
    }}, `Show more (${plural(left, 'row')} left)`) : null);
  };
  draw();
  return h('div', {class: 'table'}, h('table', null, caption && h('caption', null, caption),
    h('thead', null, h('tr', null, heads)), body), foot);
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a ?? '').localeCompare(String(b ?? ''), 'en', {numeric: true});
}

/**
 * Returns tabs (ARIA APG, with arrow keys). Tabs: `{id, title, render(panel)}`; `render` is called when
 * a tab is chosen. `chosen(id)` is told of each choice.
 */
export function tabs(list, first, chosen, label = 'Parts') {
  const area = h('div', {role: 'tabpanel', id: id('tabpanel'), tabindex: '0', class: 'tabpanel'});
  const buttons = list.map(t => h('button', {type: 'button', role: 'tab', id: `tab-${t.id}`, 'aria-controls': area.id,
    onclick: () => choose(t.id), onkeydown: move}, t.title));
  function move(e) {
    const at = buttons.indexOf(e.currentTarget);
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1}[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = list[(to + list.length) % list.length].id;
    choose(next);
    buttons.find(b => b.id === `tab-${next}`).focus();
  }
  async function choose(id) {
    const tab = list.find(t => t.id === id) || list[0];
    buttons.forEach(b => {
      const on = b.id === `tab-${tab.id}`;
      b.setAttribute('aria-selected', on);
      b.tabIndex = on ? 0 : -1;
    });
    area.setAttribute('aria-labelledby', `tab-${tab.id}`);
    chosen?.(tab.id);
    replace(area, h('p', {class: 'quiet'}, 'Reading…'));
    const part = h('div');
    try {
      await tab.render(part);
      if (area.getAttribute('aria-labelledby') === `tab-${tab.id}`) replace(area, part);
    } catch (err) {
      if (err.name !== 'AbortError') replace(area, failure(err, () => choose(id)));
    }
  }
  choose(first);
  return h('div', {class: 'tabs'}, h('div', {role: 'tablist', 'aria-label': label}, buttons), area);
}

let ids = 0;

/** Returns an identifier that no other element has. */
export const id = prefix => `${prefix}-${++ids}`;

/**
 * Returns a labeled text field with suggestions (ARIA combobox with a listbox). `suggest(text)` returns
 * a list, or a promise of one, of texts or `{value, note}`; at most 12 are shown. `el` is the whole
 * field, `input` the text field.
 */
export function combobox(label, {value = '', suggest, placeholder, required, onchange, inputId = id('combobox')}) {
  const list = h('ul', {role: 'listbox', id: `${inputId}-list`, 'aria-label': label, hidden: true});
  let options = [], active = -1, round = 0;
  const input = h('input', {id: inputId, value, placeholder, required, autocomplete: 'off', spellcheck: 'false',
    role: 'combobox', 'aria-expanded': 'false', 'aria-controls': list.id, 'aria-autocomplete': 'list',
    oninput: open, onfocus: open,
    onblur: () => setTimeout(close, 150), onkeydown: e => {
      if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
        e.preventDefault();
        if (list.hidden) return open();
        mark((active + (e.key === 'ArrowDown' ? 1 : -1) + options.length) % options.length);
      } else if (e.key === 'Enter' && active >= 0 && !list.hidden) {
        e.preventDefault();
        take(options[active]);
      } else if (e.key === 'Escape' && !list.hidden) {
        e.stopPropagation();
        close();
      }
    }, onchange: () => onchange?.(input.value)});
  function mark(i) {
    active = i;
    [...list.children].forEach((li, n) => li.setAttribute('aria-selected', n === i));
    if (i >= 0) input.setAttribute('aria-activedescendant', list.children[i].id);
    else input.removeAttribute('aria-activedescendant');
    list.children[i]?.scrollIntoView({block: 'nearest'});
  }
  function take(option) {
    input.value = option.value;
    close();
    onchange?.(input.value);
  }
  function close() {
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    mark(-1);
  }
  async function open() {
    const mine = ++round;
    const found = await suggest(input.value);
    if (mine !== round || document.activeElement !== input) return;
    options = found.slice(0, 12).map(o => typeof o === 'string' ? {value: o} : o);
    replace(list, options.map((o, i) => h('li', {role: 'option', id: `${inputId}-${i}`, 'aria-selected': 'false',
      onmousedown: e => {
        e.preventDefault();
        take(o);
      }}, name(o.value), o.note ? h('span', {class: 'quiet'}, ' ', name(o.note)) : null)));
    list.hidden = !options.length;
    input.setAttribute('aria-expanded', String(!list.hidden));
    mark(-1);
  }
  const el = h('div', {class: 'field combobox'}, h('label', {for: inputId}, label), input, list);
  return {el, input};
}

/** Returns a labeled control. */
export function field(label, control, hint) {
  control.id ||= id('field');
  const el = h('div', {class: 'field'}, h('label', {for: control.id}, label), control);
  if (hint) {
    const hintId = id('hint');
    control.setAttribute('aria-describedby', hintId);
    append(el, h('p', {class: 'hint', id: hintId}, hint));
  }
  return el;
}

/** Tells screen readers a short text. */
export function say(text) {
  let region = document.getElementById('said');
  if (!region) {
    region = h('div', {id: 'said', class: 'unseen', role: 'status', 'aria-live': 'polite'});
    document.body.append(region);
  }
  region.textContent = text;
}
