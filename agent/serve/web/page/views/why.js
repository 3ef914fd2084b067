// Why?: which policy lets a connection or request pass or not, step by step.

import {ofFiles, send} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {keep, link} from '../core/route.js';
import {badge, combobox, command, empty, failure, field, head, id, panel, say, when} from '../core/widgets.js';
import {VERDICTS, elsewhere, hops, outcome, shadow, ways} from './why-answer.js';
import {suggestion} from './why-apply.js';
import {Known, asked, body, commandOf, forgetAll, fromParams, remember, trimmed} from './why-question.js';

const SENTENCE = 'Ask whether a connection or request passes, and which policy decides.';

/** Renders the view. */
export async function render(root, ctx) {
  if (ctx.session.mode === 'static') {
    root.append(head('Why?', SENTENCE), empty('An export has no agent that answers questions. Ask on the command line:',
      'nearside explain request --from web --to backend:80 -f DIR'));
    return;
  }
  const known = new Known(ctx.signal);
  const answer = h('div', {class: 'answers'});
  const before = h('div');
  const form = questionForm(ctx, known, ask);
  root.append(head('Why?', SENTENCE), form.el, h('div', {class: 'split'}, answer, before));
  drawHistory();
  let last = null; // the question of the answer that is shown

  async function ask(q, arrived = false) {
    const typed = last = trimmed(q);
    q = await known.named(typed);
    if (last !== typed) return;
    last = q;
    form.named(q);
    const address = link('why', q);
    if (arrived) history.replaceState(null, '', address);
    else if (location.hash !== address) history.pushState(null, '', address); // goes back to the question before
    answer.setAttribute('aria-busy', 'true');
    if (!answer.firstChild) replace(answer, h('p', {class: 'quiet'}, 'Asking…'));
    await show(q, true);
    answer.removeAttribute('aria-busy');
  }

  async function show(q, first) {
    let found;
    try {
      found = await known.resolve(q);
      const flow = await send('POST', '/v1/explain', body(found.q), {signal: ctx.signal});
      if (q !== last) return;
      form.resolved(found.q.kind);
      draw(q, found, flow);
      if (!first) return;
      say(`${flow.verdict}: ${flow.reason}`);
      remember({...q, kind: found.q.kind}, flow.verdict);
      drawHistory();
    } catch (err) {
      if (err.name === 'AbortError' || q !== last) return;
      if (!first) throw err;
      replace(answer, failure(err, () => ask(q)), found && found.client.total === 0 ? missing(found, q) : null);
    }
  }

  function draw(q, found, flow) {
    const once = new Date().toISOString();
    refresh(answer,
      h('h2', {class: 'unseen'}, 'Answer'),
      outcome(flow, once, resolution(q, found), ofFiles(ctx.session)),
      hops(flow),
      suggestion(flow, ctx, async result => {
        known.forget();
        await show(q, true);
        if (q === last) answer.prepend(panel('The change', {class: 'suggestion'}, result));
      }),
      shadow(flow),
      ways(flow),
      elsewhere(commandOf(found.q, ctx.session.files || [])));
  }

  function drawHistory() {
    const list = asked();
    refresh(before, panel('Asked before', null, list.length ? h('ul', {class: 'flat asked'}, list.map(e => h('li', null,
      badge(VERDICTS[e.verdict] || 'off', e.verdict), ' ',
      h('a', {href: link('why', e.draft ? {...e.q, draft: 1} : e.q)}, name(e.q.from, 30), ' → ', name(e.q.to, 40)),
      h('span', {class: 'quiet'}, ' ', e.q.kind === 'request' ? [e.q.method || 'GET', ' ', name(e.q.path || '/', 30)]
        : e.q.kind, ' · ', when(e.time)))))
      : h('p', {class: 'quiet'}, 'Your questions appear here. This browser keeps them, without values of headers.'),
    list.length ? h('p', null, h('button', {type: 'button', onclick: () => {
      forgetAll();
      drawHistory();
    }}, 'Forget all')) : null));
  }

  const q = fromParams(ctx.params);
  if (q.from && q.to && !ctx.params.get('draft')) await ask(q, true);
  else replace(answer, start(ctx.params.get('draft')));
  // A question that takes long is asked again less often, so that the page costs the agent little.
  let timer = 0, took = 0, begun = 0;
  ctx.atEnd(() => clearTimeout(timer));
  const repeat = async () => {
    if (!last || document.hidden || answer.querySelector('.suggestion [role=status] > *')) return;
    begun = Date.now();
    known.forget();
    await show(last, false).catch(() => {}); // the answer stays; the next event asks again
    took = Date.now() - begun;
  };
  ctx.live(['change', 'ack', 'nack'], () => {
    clearTimeout(timer);
    timer = setTimeout(repeat, Math.max(0, begun + 100 * took - Date.now()));
  });
}

function start(draft) {
  if (draft) {
    return h('p', {class: 'notice'}, h('span', null,
      'The history keeps no values of headers and no query of a path. Add them, and ask.'));
  }
  return empty('Choose a client and a destination. The answer names the policy and the field behind each step.',
    h('a', {href: link('map')}, 'Choose two services on the map'));
}

function missing(found, q) {
  return h('p', null, 'No Dataplane and no service of mesh ', name(found.q.mesh), ' has the name ', name(q.from), '. ',
    h('a', {href: link('proxies', {mesh: found.q.mesh})}, 'Show all proxies'));
}

// How names were resolved, if the question names services.
function resolution(q, {q: full, client, service}) {
  const parts = [];
  if (client.of) {
    const which = client.total > 1 ? `, one of the ${client.total} dataplanes` : ', the dataplane';
    parts.push(h('p', null, 'Asked for ', name(full.from), `${which} of the service `, name(client.of), '.',
      client.others.length ? [' Ask for another: ', client.others.slice(0, 5).map((o, i) => [i ? ', ' : '',
        h('a', {href: link('why', {...q, from: o})}, name(o, 40))])] : null));
  }
  if (full.to !== q.to) {
    parts.push(h('p', null, 'The client dials ', h('span', {class: 'mono'}, name(full.to)), ' for ', name(q.to), '.'));
  }
  if (service && !service.reachable) {
    parts.push(h('p', null, 'Not reachable for this client: ', name(service.reason, 400)));
  }
  return parts;
}

// The form. `ask` gets the question.
function questionForm(ctx, known, ask) {
  const q = fromParams(ctx.params);
  const mesh = () => meshField.input.value.trim() || 'default';
  const meshField = combobox('Mesh', {value: q.mesh || 'default', suggest: async text =>
    matching(await known.names('Mesh', ''), text)});
  const from = combobox('From (dataplane or service)', {value: q.from, required: true, suggest: async text =>
    matching(await known.names('Dataplane', mesh()), text)});
  const to = combobox('To (service, or host:port)', {value: q.to, required: true, suggest: destinations});
  meshField.el.hidden = mesh() === 'default';
  known.names('Mesh', '').then(list => { meshField.el.hidden = list.length < 2 && list[0] === mesh(); }, () => {});

  async function destinations(text) {
    if (!from.input.value.trim()) return [];
    const asked = await known.named({mesh: mesh() === 'default' ? '' : mesh(), from: from.input.value.trim(), to: ''});
    const client = await known.client(asked.mesh || 'default', asked.from);
    const list = await known.backends(asked.mesh || 'default', client.name);
    const wanted = text.toLowerCase();
    return list.filter(b => [b.name, ...b.hostnames, ...b.addresses].some(x => x.toLowerCase().includes(wanted)))
      .sort((a, b) => b.reachable - a.reachable).slice(0, 12).map(b => ({value: b.name, note: [b.addresses[0],
        b.hostnames[0], b.reachable ? '' : 'not reachable', b.permission === 'denied' ? 'denied' : '']
        .filter(Boolean).join(' · ')}));
  }

  const group = id('kind');
  const KINDS = [['', 'By the protocol'], ['request', 'HTTP request'], ['tls', 'TLS connection'], ['tcp', 'Other TCP']];
  const radios = KINDS.map(([value, text]) => [h('input', {type: 'radio', name: group,
    id: `${group}-${value || 'auto'}`, value, checked: q.kind === value, onchange: parts}), text]);
  const kind = () => radios.find(([r]) => r.checked)?.[0].value ?? '';
  const method = h('select', null, ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS'].map(m =>
    h('option', {selected: m === (q.method || 'GET')}, m)));
  const pathInput = h('input', {value: q.path, placeholder: '/', spellcheck: 'false', autocomplete: 'off'});
  const headers = h('textarea', {rows: 2, spellcheck: 'false', placeholder: 'x-user: 7', value: q.headers});
  const http = h('select', null, [['', 'HTTP/1.1'], ['2', 'HTTP/2'], ['1.0', 'HTTP/1.0']].map(([value, text]) =>
    h('option', {value, selected: value === q.http}, text)));
  const sni = h('input', {value: q.sni, spellcheck: 'false', autocomplete: 'off'});
  const alpn = h('input', {value: q.alpn, placeholder: 'h2, http/1.1', spellcheck: 'false', autocomplete: 'off'});
  const silent = check('The client waits until the server speaks first', q.silent);
  const ip = h('input', {value: q.ip, placeholder: '203.0.113.7', spellcheck: 'false', autocomplete: 'off'});
  const withShadow = check('Also answer with shadow policies', q.shadow);
  const forRequest = h('div', {class: 'fields'}, field('Method', method), field('Path', pathInput),
    field('Headers, one in each line', headers, 'The address of this page has them: leave out secrets.'));
  const forTLS = h('div', {class: 'fields'}, field('Server name (SNI)', sni, 'Empty: the host; - for none.'),
    field('Protocols (ALPN)', alpn));
  const forTCP = h('div', {class: 'fields'}, silent.el);
  function parts() {
    forRequest.hidden = kind() !== 'request';
    forTLS.hidden = kind() !== 'tls';
    forTCP.hidden = kind() !== 'tcp';
    version.hidden = kind() !== 'request';
  }
  const version = field('Version', http);
  const more = h('details', {open: Boolean(q.ip || q.shadow || q.http)}, h('summary', null, 'More options'),
    h('div', {class: 'fields'}, version, field('Address behind the name', ip,
      'For a host outside the mesh: the address that the client dials.'), withShadow.el));
  const button = h('button', {class: 'primary'}, 'Ask');
  const el = h('form', {class: 'panel question', onsubmit: async e => {
    e.preventDefault();
    button.disabled = true;
    replace(button, 'Asking…');
    await ask({mesh: mesh() === 'default' ? '' : mesh(), from: from.input.value, to: to.input.value, kind: kind(),
      method: method.value, path: pathInput.value, headers: headers.value, http: http.value, sni: sni.value,
      alpn: alpn.value, silent: silent.input.checked ? '1' : '', ip: ip.value,
      shadow: withShadow.input.checked ? '1' : ''});
    button.disabled = false;
    replace(button, 'Ask');
  }},
  h('div', {class: 'fields main'}, meshField.el, from.el, to.el, button),
  h('fieldset', {class: 'sorts'}, h('legend', {class: 'unseen'}, 'What the client sends'),
    radios.map(([r, text]) => h('label', {for: r.id}, r, ' ', text))),
  forRequest, forTLS, forTCP, more);
  parts();
  return {el, named(found) {
    meshField.input.value = found.mesh || 'default';
    if (found.mesh) meshField.el.hidden = false;
    from.input.value = found.from;
    to.input.value = found.to;
  }, resolved(found) {
    if (kind() || !found) return;
    const chosen = radios.find(([r]) => r.value === found);
    if (!chosen) return;
    chosen[0].checked = true;
    keep({kind: found});
    parts();
  }};
}

function check(text, on) {
  const input = h('input', {type: 'checkbox', id: id('check'), checked: Boolean(on)});
  return {input, el: h('label', {class: 'check', for: input.id}, input, ' ', text)};
}

// Names that contain a text, those that begin with it first.
function matching(names, text) {
  const wanted = text.toLowerCase();
  const list = names.filter(n => n.toLowerCase().includes(wanted));
  return list.sort((a, b) => b.toLowerCase().startsWith(wanted) - a.toLowerCase().startsWith(wanted)).slice(0, 12);
}
