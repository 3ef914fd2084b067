// "This would allow it": the suggested policy with a preview, and its application.

import {query, send} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {count, key, plural} from '../core/format.js';
import {link} from '../core/route.js';
import {badge, block, failure, panel, resourceLink, say} from '../core/widgets.js';

const SHOWN = 20; // proxies of a preview

/** Returns the panel of a suggestion. `again` asks the question again. */
export function suggestion(flow, ctx, again) {
  if (!flow.suggest) return null;
  const area = h('div', {role: 'status'});
  const cut = flow.suggest.length > 1500; // an address has limits; the text can be copied
  const busy = async (words, f) => {
    replace(area, h('p', {class: 'quiet'}, words));
    for (const b of buttons) b.disabled = true;
    try {
      await f();
    } catch (err) {
      if (err.name !== 'AbortError') replace(area, failure(err));
    }
    for (const b of buttons) b.disabled = b === apply && !ctx.session.write;
  };
  const preview = h('button', {type: 'button', onclick: () => busy('Computing what would change…', async () => {
    const diff = await send('POST', '/v1/diff?omit=patch&omit=items', flow.suggest, {signal: ctx.signal});
    replace(area, changes(diff, diff.warnings));
  })}, 'Preview');
  const apply = h('button', {type: 'button', class: 'primary', disabled: !ctx.session.write,
    'aria-describedby': ctx.session.write ? null : 'why-readonly',
    onclick: () => busy('Trying the change without storing it…', async () => {
      const dry = await send('POST', '/v1/apply?dryRun=true', flow.suggest, {signal: ctx.signal});
      confirm(area, dry, flow.suggest, ctx, again, busy);
    })}, 'Apply…');
  const buttons = [preview, apply];
  return panel('This would allow it', {class: 'suggestion'},
    h('p', {class: 'quiet'}, 'The smallest change, which the agent has tried. Read it before you apply it.'),
    block(flow.suggest, 'the policy'),
    flow.wildcard ? h('p', {class: 'quiet'}, 'To allow all hosts of the domain, match ',
      h('code', null, name(flow.wildcard)), ' instead.') : null,
    h('div', {class: 'row'}, preview, apply,
      cut ? null : h('a', {href: link('change', {text: flow.suggest})}, 'Edit it first')),
    ctx.session.write ? null : h('div', {id: 'why-readonly'}, h('p', {class: 'quiet'},
      'This page is read-only. Start nearside ui --write, or apply the policy on the command line:'),
    block(`nearside apply -f - <<'END'\n${flow.suggest.trimEnd()}\nEND\n`, 'the command')),
    area);
}

function confirm(area, dry, text, ctx, again, busy) {
  const yes = h('button', {type: 'button', class: 'primary', onclick: () => busy('Applying…', async () => {
    const done = await send('POST', '/v1/apply', text, {signal: ctx.signal});
    await settle(area, done, ctx, again);
  })}, 'Apply it');
  const no = h('button', {type: 'button', onclick: () => replace(area)}, 'Cancel');
  replace(area, changes(dry.diff, dry.warnings), h('div', {class: 'row'}, yes, no));
  yes.focus();
}

// What would change on which proxies, and what the check says about it.
function changes(diff, warnings) {
  if (!diff) return null;
  const list = diff.proxies;
  const blocked = diff.findings.filter(f => f.severity !== 'warning');
  return h('div', {class: 'preview'},
    h('p', null, diff.resources.map((r, i) => [i ? ', ' : '', badge('info', r.action), ' ', name(key(r))])),
    h('p', null, list.length ? `Changes ${count(list.length)} of ${plural(diff.compared, 'proxy', 'proxies')}`
      : `Changes none of ${plural(diff.compared, 'proxy', 'proxies')}`,
    diff.scope === 'all' ? ' (none is connected, so all dataplanes are compared).' : '.'),
    list.length ? h('ul', {class: 'flat'}, list.slice(0, SHOWN).map(p => h('li', null,
      resourceLink({type: 'Dataplane', mesh: p.mesh, name: p.name}, p.name), ' ',
      h('span', {class: p.action === 'failed' ? 'bad' : 'quiet'}, p.error ? name(p.error, 300) : parts(p))))) : null,
    list.length > SHOWN ? h('p', {class: 'quiet'}, `and ${plural(list.length - SHOWN, 'other proxy', 'other proxies')}`)
      : null,
    blocked.map(f => h('p', {class: 'bad'}, name(f.message, 500), ' (rule ', String(f.rule), ')')),
    (warnings || []).slice(0, 20).map(w => h('p', {class: 'warn'},
      name(typeof w === 'string' ? w : [w.resource, w.reason].filter(Boolean).join(': '), 500))));
}

const SIGNS = [['added', '+'], ['changed', '~'], ['removed', '−']];

function parts(p) {
  const of = list => list.map(t => `${t.type.split('.').at(-1)} ` +
    SIGNS.filter(([field]) => t[field]).map(([field, sign]) => sign + count(t[field])).join(' '));
  return [...of(p.config.summary), ...of(p.rules.summary).map(t => `rules: ${t}`)].join(', ') || p.action;
}

// Waits until the proxies have the change, and asks the question again.
async function settle(area, done, ctx, again) {
  const revision = Math.max(...done.changes.map(c => c.revision || 0));
  const head = h('p', null, badge('ok', 'stored'), ` revision ${count(revision)}. `,
    h('a', {href: link('history')}, 'History'));
  for (const c of done.changes) {
    let state = {state: 'pending'};
    let late = [];
    while (state.state === 'pending') {
      state = await send('POST', '/v1/wait', {type: c.type, mesh: c.mesh, name: c.name, timeout: '20s', late},
        {signal: ctx.signal});
      late = state.late.map(p => `${p.mesh}/${p.name}`);
      const affected = plural(state.proxies, 'connected proxy', 'connected proxies');
      replace(area, head, h('p', null, name(key(c)), ': ', badge(STATES[state.state] || 'warn', state.state), ' ',
        state.proxies ? `${count(state.acknowledged)} of ${affected}` : 'no connected proxy is affected',
        state.reason ? [': ', name(state.reason, 300)] : null),
      state.rejected.slice(0, 5).map(r =>
        h('p', {class: 'bad'}, name(`${r.mesh}/${r.name}`), ': ', name(r.reason, 400))));
    }
    say(`${key(c)} ${state.state}`);
  }
  await again([...area.childNodes]);
}

const STATES = {applied: 'ok', gone: 'ok', pending: 'info', rejected: 'bad', stale: 'bad'};
