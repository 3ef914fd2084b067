// An editor of YAML: line numbers, faults at their lines, and completion.

import {h, name, replace} from '../core/dom.js';
import {plural} from '../core/format.js';
import {id, say} from '../core/widgets.js';
import {suggest} from './completion.js';

/** The most bytes of a text in the editor. */
export const MOST = 1 << 20;

/**
 * Returns an editor: `{el, text, value(), set(text), faults(list), focus()}`. `changed()` is called after each
 * change of the text. Faults are `{line, field, reason}`; line 0 is the whole text.
 */
export function editor(label, {value = '', changed, run, readOnly = false} = {}) {
  const areaId = id('editor'), listId = id('suggestions');
  const numbers = h('div', {class: 'numbers', 'aria-hidden': 'true'});
  const list = h('ul', {class: 'suggestions', role: 'listbox', id: listId, 'aria-label': 'Completion', hidden: true});
  const box = h('textarea', {id: areaId, value, readOnly, spellcheck: 'false', autocapitalize: 'off',
    autocomplete: 'off',
    'aria-label': label, 'aria-autocomplete': 'list', 'aria-controls': listId, wrap: 'off', oninput: edited,
      onkeydown: key,
    onscroll: scrolled, onblur: () => setTimeout(close, 150), onclick: close});
  const messages = h('div', {'aria-live': 'polite'});
  const frame = h('div', {class: 'editor'}, numbers, box, list);
  let bad = [], options = [], active = -1, from = 0, round = 0, lines = -1;

  function draw() {
    const count = box.value.split('\n').length;
    const marked = new Set(bad.map(f => f.line));
    lines = count;
    replace(numbers, Array.from({length: Math.min(count, 20000)}, (_, i) =>
      h('span', {class: marked.has(i + 1) ? 'fault' : null}, String(i + 1))));
    box.rows = Math.max(14, Math.min(count + 1, 36));
    align();
  }

  function align() {
    numbers.scrollTop = box.scrollTop;
    numbers.style.height = `${box.clientHeight}px`;
  }

  function scrolled() {
    align();
    close();
  }

  function edited() {
    if (box.value.split('\n').length !== lines) draw();
    changed?.();
    complete(false);
  }

  async function complete(asked) {
    const mine = ++round, caret = box.selectionStart;
    if (caret !== box.selectionEnd || box.readOnly) return close();
    const found = await suggest(box.value, caret);
    if (mine !== round || document.activeElement !== box || box.selectionStart !== caret) return;
    const typed = box.value.slice(found.from, caret);
    if (!found.list.length || !asked && !typed) return close();
    ({list: options, from} = found);
    replace(list, options.map((o, i) => h('li', {role: 'option', id: `${listId}-${i}`, 'aria-selected': 'false',
      onmousedown: e => {
        e.preventDefault();
        take(o);
      }}, name(o.value), o.note ? h('span', {class: 'quiet'}, ' ', name(o.note, 90)) : null)));
    list.hidden = false;
    position();
    mark(asked ? 0 : -1);
    say(plural(options.length, 'suggestion'));
  }

  function position() {
    const before = box.value.slice(0, from).split('\n');
    const style = getComputedStyle(box), line = parseFloat(style.lineHeight);
    const top = before.length * line + parseFloat(style.paddingTop) - box.scrollTop + 2;
    list.style.top = `${Math.max(line, top)}px`;
    const left = numbers.offsetWidth + parseFloat(style.paddingLeft)
      + before.at(-1).length * width(style) - box.scrollLeft;
    list.style.left = `${Math.max(0, Math.min(left, frame.clientWidth - 240))}px`;
    frame.classList.toggle('open', true);
  }

  function mark(i) {
    active = i;
    [...list.children].forEach((li, n) => li.setAttribute('aria-selected', n === i));
    if (i < 0) return box.removeAttribute('aria-activedescendant');
    box.setAttribute('aria-activedescendant', list.children[i].id);
    list.children[i].scrollIntoView({block: 'nearest'});
  }

  function take(option) {
    const caret = box.selectionStart;
    box.setRangeText(option.insert, from, caret, 'end');
    close();
    edited();
  }

  function close() {
    round++;
    list.hidden = true;
    frame.classList.toggle('open', false);
    options = [];
    mark(-1);
  }

  function key(e) {
    if (e.key === ' ' && e.ctrlKey) {
      e.preventDefault();
      complete(true);
    } else if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      run?.();
    } else if (!list.hidden && (e.key === 'ArrowDown' || e.key === 'ArrowUp')) {
      e.preventDefault();
      mark((active + (e.key === 'ArrowDown' ? 1 : -1) + options.length) % options.length);
    } else if (!list.hidden && e.key === 'Enter' && active >= 0) {
      e.preventDefault();
      take(options[active]);
    } else if (!list.hidden && e.key === 'Escape') {
      e.stopPropagation();
      close();
    } else if (e.key === 'Enter' && !e.shiftKey && !box.readOnly) {
      const line = box.value.slice(0, box.selectionStart).split('\n').at(-1);
      const indent = line.match(/^\s*/)[0] + (/:\s*$/.test(line) ? '  ' : '');
      if (!indent) return;
      e.preventDefault();
      box.setRangeText('\n' + indent, box.selectionStart, box.selectionEnd, 'end');
      edited();
    } else if (['ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(e.key)) {
      close();
    }
  }

  function goTo(line) {
    const at = box.value.split('\n').slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
    const end = box.value.indexOf('\n', at);
    box.focus();
    box.setSelectionRange(at, end < 0 ? box.value.length : end);
    box.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(box).lineHeight));
  }

  requestAnimationFrame(draw);
  return {
    el: h('div', null, frame, h('p', {class: 'hint'}, 'Ctrl+Space completes. Ctrl+Enter shows the effect.'),
      messages),
    text: box,
    value: () => box.value,
    focus: () => box.focus(),
    set(text) {
      box.value = text;
      bad = [];
      replace(messages);
      draw();
      close();
    },
    faults(faults) {
      bad = faults;
      box.setAttribute('aria-invalid', String(faults.length > 0));
      draw();
      replace(messages, faults.length ? h('ul', {class: 'faults'}, faults.slice(0, 50).map(f => h('li', null,
        f.line ? h('button', {type: 'button', class: 'plain', onclick: () => goTo(f.line)}, `Line ${f.line}`) : null,
        f.line ? ' ' : null, f.field ? [h('code', null, name(f.field)), ': '] : null, name(f.reason, 1000)))) : null);
    },
  };
}

const measured = new Map();

function width(style) {
  if (!measured.has(style.font)) {
    const context = document.createElement('canvas').getContext('2d');
    context.font = style.font;
    measured.set(style.font, context.measureText('0000000000').width / 10);
  }
  return measured.get(style.font);
}

/** Returns the faults that an error of the API names. */
export function faultsOf(err) {
  const list = (err.parameters || []).map(p => {
    const m = p.reason.match(/^line (\d+): (?:document \d+ ?(?:\([^)]*\))?: )?([\s\S]*)$/);
    return m ? {line: Number(m[1]), field: p.field, reason: m[2]}
      : {line: 0, field: [p.document, p.field].filter(Boolean).join(' '), reason: p.reason};
  });
  return list.length ? list : [{line: 0, field: '', reason: err.message}];
}
