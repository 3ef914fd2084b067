// A tree of the ARIA pattern, whose branches are built when they are opened.

import {append, h, name} from '../core/dom.js';
import {plural} from '../core/format.js';

/** The most items that are shown below one branch before "show more". */
const MOST = 200;

/**
 * Returns a tree. Nodes: `{id, label, text?, note?(), children?()}`; `children` returns nodes, and is called
 * when the branch is opened. `chosen(id)` is called when an item gets the focus by the user. The
 * result is `{el, reveal(ids)}`; `reveal` opens a path of identifiers, and focuses its end if `focus`.
 */
export function tree(label, nodes, {chosen, expand = () => false} = {}) {
  const el = h('ul', {role: 'tree', 'aria-label': label, class: 'tree', onkeydown: key, onclick: click,
    onfocusin: focus});
  const items = new WeakMap(); // element → node
  let active = null;

  function fill(list, children, level, from = 0) {
    for (const node of children.slice(from, from + MOST)) append(list, item(node, level));
    const left = children.length - from - MOST;
    if (left <= 0) return;
    const more = h('li', {role: 'treeitem', tabindex: '-1', 'aria-level': level, class: 'more'},
      h('span', {class: 'line'}, `Show more (${plural(left, 'item')} left)`));
    items.set(more, {more: () => {
      const before = more.previousElementSibling;
      more.remove();
      fill(list, children, level, from + MOST);
      go(before.nextElementSibling);
    }});
    append(list, more);
  }

  function item(node, level) {
    const branch = Boolean(node.children);
    const li = h('li', {role: 'treeitem', tabindex: '-1', 'aria-level': level, 'aria-expanded': branch ? 'false'
      : null,
      dataset: {id: node.id}},
    h('span', {class: 'line'}, h('span', {class: 'mark', 'aria-hidden': 'true'}),
      h('span', {class: 'key'}, name(node.label, 120)), node.text !== undefined
        ? [': ', h('span', {class: 'value'}, name(node.text, 300))] : null, node.note ? node.note() : null));
    for (const a of li.querySelectorAll('a, button')) a.tabIndex = -1;
    items.set(li, node);
    if (branch && expand(node, level)) open(li);
    return li;
  }

  function level(li) {
    return Number(li.getAttribute('aria-level'));
  }
  const isOpen = li => li.getAttribute('aria-expanded') === 'true';

  function open(li) {
    if (li.getAttribute('aria-expanded') !== 'false') return;
    li.setAttribute('aria-expanded', 'true');
    const group = li.querySelector(':scope > ul');
    if (group) {
      group.hidden = false;
      return;
    }
    const list = h('ul', {role: 'group'});
    fill(list, items.get(li).children(), level(li) + 1);
    append(li, list);
  }

  function close(li) {
    if (!isOpen(li)) return;
    li.setAttribute('aria-expanded', 'false');
    li.querySelector(':scope > ul').hidden = true;
  }

  function activate(li) {
    if (!li || li === active) return;
    if (active) {
      active.tabIndex = -1;
      for (const a of links(active)) a.tabIndex = -1;
    }
    active = li;
    li.tabIndex = 0;
    for (const a of links(li)) a.tabIndex = 0;
  }

  const links = li => li.querySelectorAll(':scope > .line a, :scope > .line button');

  function go(li) {
    if (!li) return;
    activate(li);
    li.focus();
  }

  function focus(e) {
    const li = e.target.closest('[role=treeitem]');
    activate(li);
    if (li?.dataset.id) chosen?.(li.dataset.id);
  }

  function click(e) {
    if (e.target.closest('a, button')) return;
    const li = e.target.closest('[role=treeitem]');
    if (!li || getSelection().toString()) return;
    go(li);
    toggle(li);
  }

  function toggle(li) {
    const node = items.get(li);
    if (node.more) node.more();
    else if (isOpen(li)) close(li);
    else open(li);
  }

  const shown = () => [...el.querySelectorAll('[role=treeitem]')].filter(li => !li.parentElement.closest('ul[hidden]'));

  function key(e) {
    const li = e.target.closest('[role=treeitem]');
    if (!li || e.target !== li || e.ctrlKey || e.metaKey || e.altKey) return;
    const all = shown(), at = all.indexOf(li);
    const acts = {
      ArrowDown: () => go(all[at + 1]), ArrowUp: () => go(all[at - 1]), Home: () => go(all[0]),
        End: () => go(all.at(-1)),
      ArrowRight: () => isOpen(li) ? go(li.querySelector('[role=treeitem]')) : open(li),
      ArrowLeft: () => isOpen(li) ? close(li) : go(li.parentElement.closest('[role=treeitem]')),
      Enter: () => toggle(li), ' ': () => toggle(li),
    };
    if (!acts[e.key]) return;
    e.preventDefault();
    acts[e.key]();
  }

  fill(el, nodes, 1);
  activate(el.querySelector('[role=treeitem]'));
  return {
    el,
    reveal(ids, {focus: toFocus = false} = {}) {
      let list = el, li = null;
      for (const id of ids) {
        let next;
        for (;;) {
          next = [...list.children].find(c => c.dataset.id === id);
          const more = list.lastElementChild;
          if (next || !more || !items.get(more)?.more) break;
          items.get(more).more();
        }
        if (!next) break;
        li = next;
        if (id !== ids.at(-1)) open(li);
        list = li.querySelector(':scope > ul') || list;
      }
      if (!li) return;
      activate(li);
      if (toFocus) li.focus();
      li.scrollIntoView({block: 'center'});
    },
  };
}
