// Write a change, see its effect, try it as a shadow policy, apply it, wait, and go back.

import {get, query, send} from '../core/api.js';
import {append, h, name, replace} from '../core/dom.js';
import {key} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {command, failure, field, head, panel, say} from '../core/widgets.js';
import {diff} from '../parts/diff.js';
import {isShadow, keys, withShadow} from '../parts/documents.js';
import {editor, faultsOf, MOST} from '../parts/editor.js';
import {address} from '../parts/history.js';
import {fileOf, historyPath, kindOf, kinds, resourcePath} from '../parts/kinds.js';
import {resourceOf} from '../parts/names.js';
import {template} from '../parts/templates.js';
import * as write from '../parts/write.js';
import {toYAML} from '../parts/yaml.js';

/**
 * Renders the view. Parameters: `type`, `mesh`, and `name` of the resource to edit, with `revision` for an earlier
 * content; `file` to edit; `text` to begin with; `kind` for a template.
 */
export async function render(root, ctx) {
  const all = await kinds(), policies = new Set(all.filter(k => k.policy).map(k => k.kind));
  const from = await load(ctx);
  const result = h('div', {class: 'result'}), done = h('div', {'aria-live': 'polite'}),
    buttons = h('div', {class: 'actions'});
  let checking, timer = 0, shown = null, busy = false, faulty = false;
  const edit = editor(from.title || 'Text of the resources', {value: from.text, changed, run: preview});

  function changed() {
    shown = null;
    draw();
    clearTimeout(timer);
    timer = setTimeout(check, 700);
    result.classList.add('old');
  }

  // The question about the effect of the text, without documents of the file that it no longer has.
  const question = options => {
    const now = keys(edit.value()).map(key);
    const gone = from.file ? from.keys.filter(k => k.type && k.name && !now.includes(key(k))).map(key) : [];
    const address = query('/v1/diff', options);
    return gone.reduce((a, k) => `${a}${a.includes('?') ? '&' : '?'}delete=${encodeURIComponent(k)}`, address);
  };

  async function ask(options) {
    checking?.abort();
    checking = new AbortController();
    const mine = checking;
    ctx.signal.addEventListener('abort', () => mine.abort());
    return send('POST', question(options), edit.value(), {signal: mine.signal});
  }

  async function check() {
    if (!edit.value().trim()) return edit.faults([]);
    if (edit.value().length > MOST) return edit.faults([{line: 0, field: '',
      reason: 'the text has more than 1 MiB'}]);
    try {
      await ask({omit: 'patch,items'});
      faulty = false;
      edit.faults([]);
    } catch (err) {
      if (err.name === 'AbortError') return;
      faulty = err.status === 400 || err.status === 422;
      edit.faults(faulty || err.status === 405 ? faultsOf(err) : []);
    }
    draw();
  }

  async function preview() {
    clearTimeout(timer);
    if (!edit.value().trim()) return edit.focus();
    if (!result.childElementCount) replace(result, h('p', {class: 'quiet', role: 'status'}, 'Computing the effect…'));
    result.setAttribute('aria-busy', 'true');
    const text = edit.value();
    try {
      const answer = await ask({omit: 'patch', shadow: isShadow(text)});
      faulty = false;
      edit.faults([]);
      replace(result, isShadow(text) ? h('p', {class: 'notice'},
        'This is the effect of the shadow policies if they acted like others. ' +
        'Applied as shadow policies, they change no proxy.') : null, diff(answer));
      shown = {text, answer};
      say('The effect is shown below.');
    } catch (err) {
      if (err.name === 'AbortError') return;
      faulty = err.status === 400;
      if (faulty) {
        edit.faults(faultsOf(err));
        replace(result);
        say('The text has faults.');
      } else {
        replace(result, failure(err, preview));
        if (err.status === 403) shown = {text}; // who may not inspect may still write
      }
    }
    result.classList.remove('old');
    result.removeAttribute('aria-busy');
    draw();
  }

  async function apply() {
    busy = true;
    draw();
    const text = edit.value();
    const documents = keys(text);
    const only = documents.length === 1 && from.resource && key(documents[0]) === key(from.resource) ? from.resource
      : null;
    try {
      const ok = from.file
        ? await write.saveFile(done, from.file, text, from.etag,
          shown.answer?.resources || [], ctx.signal)
        : await write.apply(done, text, {etag: from.etag, only, signal: ctx.signal});
      if (ok) await reread(text, documents[0], ok.changes);
    } catch (err) {
      if (err.name !== 'AbortError') done.append(failure(err));
    }
    busy = false;
    draw();
  }

  async function reread(text, first, changes = []) {
    if (from.file) Object.assign(from, await write.readFile(from.file), {keys: keys(text)});
    else if (from.etag && first) from.etag = (await get(resourcePath(await kindOf(first.type), first),
      ctx.signal)).etag;
    const list = changes.filter(c => c.action !== 'unchanged');
    if (list.length) done.append(rollbackOf(list));
    if (first?.name) done.append(h('p', null, h('a', {href: address(first)}, 'History and earlier revisions of ',
      name(key(first)))));
  }

  function rollbackOf(changes) {
    const button = h('button', {type: 'button', onclick: async () => {
      button.disabled = true;
      const area = h('div');
      replace(done, h('p', {class: 'quiet', role: 'status'}, 'Taking the change back…'), area);
      try {
        if (await write.undo(area, changes, ctx.signal)) {
          done.firstElementChild.textContent = 'The change is taken back.';
          from.etag = undefined;
        }
      } catch (err) {
        if (err.name !== 'AbortError') replace(done, failure(err));
      }
    }}, 'Roll back');
    return h('p', null, button);
  }

  const setShadow = on => () => {
    edit.set(withShadow(edit.value(), on, type => policies.has(type)));
    changed();
    preview();
  };

  function draw() {
    const why = write.readOnly(ctx.session), text = edit.value(), shadow = isShadow(text);
    const can = text.trim() && !busy && !faulty;
    const reason = why || (shown ? null : 'Show the effect first.');
    const policy = keys(text).some(d => policies.has(d.type));
    replace(buttons,
      h('button', {type: 'button', class: shown ? '' : 'primary', disabled: !text.trim() || busy, onclick: preview},
        'Show the effect'),
      policy ? h('button', {type: 'button', disabled: !can, onclick: setShadow(!shadow),
        title: shadow ? 'Remove the label kuma.io/effect: shadow'
          : 'Add the label kuma.io/effect: shadow: the policy is stored, and acts on no proxy'},
      shadow ? 'Make it act' : 'Make it a shadow policy') : null,
      h('button', {type: 'button', class: shown && !why ? 'primary' : '', disabled: Boolean(reason) || !can,
        title: reason, onclick: apply},
        from.file ? 'Save the file' : shadow ? 'Apply as shadow policy' : 'Apply'),
      write.instead(ctx.session, from.file ? '' : 'nearside apply -f FILE'));
  }

  append(root, head(['Change', from.title ? [' ', name(from.title)] : null], from.sentence,
    h('a', {href: link('change')}, 'New'),
    h('a', {href: link('history')}, 'History')),
  from.note, from.pick ? kindPicker(all, from, ctx) : null,
  h('section', {class: 'panel', 'aria-label': 'Text'}, edit.el, buttons, done), result);
  ctx.atEnd(() => {
    clearTimeout(timer);
    checking?.abort();
  });
  draw();
  if (from.text.trim() && ctx.params.get('show') === '1') await preview();
  else if (from.text.trim()) await check();
}

function kindPicker(all, from, ctx) {
  const select = h('select', {onchange: () => select.value &&
    (location.hash = link('change', {kind: select.value, mesh: ctx.params.get('mesh')}))},
    h('option', {value: ''}, 'Choose a kind'), all.filter(k => !k.legacy).map(k => h('option', {value: k.kind},
      k.kind)));
  select.value = ctx.params.get('kind') || '';
  return panel('Begin with a template', null, h('div', {class: 'row'},
    field('Kind', select, 'Or paste or write any resources below, separated by ---.')));
}

// What the editor begins with: a resource, a file, a given text, a template, or nothing.
async function load(ctx) {
  const p = ctx.params, file = p.get('file'), text = p.get('text');
  if (file) return loadFile(file, ctx, '');
  const wanted = await resourceOf(p);
  if (wanted.type && wanted.name) return loadResource(ctx, wanted);
  const kind = await kindOf(p.get('kind'));
  return {title: '', sentence: 'Write a change, see what it does on all proxies, then apply it.', keys: [],
    pick: !text,
    text: text || (kind ? await template(kind, p.get('mesh') || 'default') : '')};
}

async function loadResource(ctx, wanted) {
  const kind = await kindOf(wanted.type);
  if (!kind) throw new Error(`there is no kind "${wanted.type}"`);
  const revision = ctx.params.get('revision');
  const list = (await get(historyPath(kind, wanted), ctx.signal)).items;
  const last = list.at(-1), file = fileOf(last?.source);
  const chosen = revision ? list.find(i => String(i.revision) === revision) : null;
  if (revision && !chosen?.resource) throw new Error(`revision ${revision} of ${key(wanted)} has no content`);
  if (file && !revision) return loadFile(file, ctx, key(wanted));
  const document = await get(resourcePath(kind, wanted), ctx.signal).catch(err => {
    if (err.status === 404 && chosen) return {};
    throw err;
  });
  const content = chosen?.resource || document;
  const {creationTime, modificationTime, ...rest} = content; // the agent sets them
  return {title: key(wanted), text: toYAML(rest), etag: document.etag, resource: wanted, keys: [],
    sentence: chosen ? `The content of revision ${revision}. Apply it to make it the current one.`
      : 'The resource as it is stored.',
    note: null, times: [creationTime, modificationTime]};
}

async function loadFile(file, ctx, of) {
  const why = write.readOnly(ctx.session);
  if (!why) {
    try {
      const {text, etag} = await write.readFile(file);
      return {title: file, file, text, etag, keys: keys(text), sentence: of
        ? `${of} is in this file. Saving it changes the file on the node.`
        : 'Saving it changes the file on the node.'};
    } catch (err) {
      return {...await stored(ctx), title: of || file, note: failure(err)};
    }
  }
  return {...await stored(ctx), title: of || file, sentence: '',
    note: h('p', {class: 'notice'}, `${of || 'It'} is managed by the file `,
    name(file, 200), '. Try the change here, then edit that file: ', command(`$EDITOR ${file}`))};
}

// The stored content of the resource of the address, to try a change of it.
async function stored(ctx) {
  const wanted = await resourceOf(ctx.params);
  const kind = await kindOf(wanted.type);
  if (!kind || !wanted.name) return {text: '', keys: [], sentence: ''};
  const {creationTime, modificationTime, ...rest} = await get(resourcePath(kind, wanted), ctx.signal);
  return {text: toYAML(rest), keys: [], sentence: '', times: [creationTime, modificationTime]};
}
