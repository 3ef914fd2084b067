// The config of a proxy: a tree with search and the source of each line.

import {get, path, query} from '../core/api.js';
import {h, replace} from '../core/dom.js';
import {bytes, plural} from '../core/format.js';
import {current, keep} from '../core/route.js';
import {empty, failure, field, say} from '../core/widgets.js';
import {configNodes, hitList, search, steps} from './config-tree.js';
import {paths} from './proxy-state.js';
import {tree} from './tree.js';

/** Renders the part. Parameters of the address: `q` (search), `at` (a line), and `shadow`. */
export async function render(el, part) {
  const {params} = current();
  const shadow = params.get('shadow') === '1';
  const config = await get(query(paths(part.proxy).resource + '/_config', {shadow}), part.ctx.signal);
  const xds = config.xds || {};
  if (!Object.keys(xds).length) {
    replace(el, empty('This proxy has no config.'));
    return;
  }
  const area = h('div'), hits = h('div'), note = h('p', {class: 'quiet', role: 'status'});
  let view;
  const draw = sources => {
    view = tree('Config', configNodes(xds, sources), {chosen: id => keep({at: id}),
      expand: (_, level) => level === 1});
    const focused = area.contains(document.activeElement);
    replace(area, view.el);
    const at = current().params.get('at');
    if (at) view.reveal(steps(at), {focus: focused});
  };
  const find = () => {
    const wanted = box.value.trim();
    keep({q: wanted});
    if (wanted.length < 2) {
      replace(hits);
      return;
    }
    const found = search(xds, wanted);
    say(plural(found.hits.length, 'match', 'matches'));
    replace(hits, found.hits.length ? hitList(found, id => view.reveal(steps(id), {focus: true}))
      : h('p', {class: 'quiet'}, 'No key and no value contains this text.'));
  };
  let timer = 0;
  const box = h('input', {type: 'search', value: params.get('q') || '',
    placeholder: 'part of a name, field, or value',
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(find, 200);
    }});
  const shadowBox = h('input', {type: 'checkbox', checked: shadow, onchange: () => {
    keep({shadow: shadowBox.checked ? '1' : ''});
    render(el, part).catch(err => err.name === 'AbortError' || replace(el, failure(err, () => render(el, part))));
  }});
  const size = JSON.stringify(xds).length;
  const resources = Object.values(xds).reduce((n, list) => n + Object.keys(list).length, 0);
  replace(el, h('div', {class: 'panel'}, h('div', {class: 'row filters'}, field('Search', box),
    h('label', null, shadowBox, ' With shadow policies')), h('p', {class: 'quiet'},
    `${plural(resources, 'resource')}, ${bytes(size)} as JSON. Arrow keys move in the tree.`), note, hits, area));
  draw(null);
  if (box.value) find();
  if (part.zone || shadow) return;
  replace(note, 'Looking for the policies behind each line…');
  get(path`/v1/dataplanes/${part.proxy.mesh}/${part.proxy.name}/sources`, part.ctx.signal).then(found => {
    const index = new Map();
    for (const item of found.items) {
      const key = `${item.type}\n${item.resource}\n${item.path}`;
      index.set(key, [...(index.get(key) || []), ...item.by]);
    }
    draw((type, resource, at) => index.get(`${type}\n${resource}\n${at}`));
    replace(note, found.truncated ? `The sources are incomplete: ${found.truncated}. ` : '',
      index.size ? `Policies shape ${plural(index.size, 'line')}; the arrow at a line names them.`
        : 'No policy shapes this config.');
  }, err => {
    if (err.name !== 'AbortError') replace(note, `The policies behind the lines are not known: ${err.message}`);
  });
}
