// "This would allow it": the suggested policy with a preview, and its application.

import {send} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {link} from '../core/route.js';
import {block, panel} from '../core/widgets.js';
import {diff} from '../parts/diff.js';
import {waitFor} from '../parts/wait.js';
import {problem, readOnly, written} from '../parts/write.js';

const LONGEST = 1500; // characters of a policy in an address

/** Returns the panel of a suggestion. `again` asks the question again, and gets what shows the change. */
export function suggestion(flow, ctx, again) {
  const text = flow.suggest;
  if (!text) return null;
  const why = readOnly(ctx.session);
  const area = h('div', {role: 'status'});
  const busy = async (words, f) => {
    replace(area, h('p', {class: 'quiet'}, words));
    for (const b of buttons) b.disabled = true;
    try {
      await f();
    } catch (err) {
      if (err.name !== 'AbortError') replace(area, problem(err));
    }
    for (const b of buttons) b.disabled = b === apply && Boolean(why);
  };
  const preview = h('button', {type: 'button', onclick: () => busy('Computing the effect…', async () =>
    replace(area, diff(await send('POST', '/v1/diff?omit=patch', text, {signal: ctx.signal}))))}, 'Show the effect');
  const apply = h('button', {type: 'button', class: 'primary', disabled: Boolean(why), title: why || null,
    onclick: () => busy('Trying the change without storing it…', async () => {
      const dry = await send('POST', '/v1/apply?dryRun=true', text, {signal: ctx.signal});
      const yes = h('button', {type: 'button', class: 'primary', onclick: () => busy('Writing…', store)}, 'Apply it');
      replace(area, diff(dry.diff), h('div', {class: 'row'}, yes,
        h('button', {type: 'button', onclick: () => {
          replace(area);
          apply.focus();
        }}, 'Cancel')));
      yes.focus();
    })}, 'Apply…');
  const buttons = [preview, apply];
  async function store() {
    const answer = await send('POST', '/v1/apply', text, {signal: ctx.signal});
    const waiting = h('div');
    replace(area, written(answer), waiting);
    await waitFor(waiting, answer.changes.filter(c => c.action !== 'unchanged'), ctx.signal);
    await again([...area.childNodes]);
  }
  return panel('This would allow it', {class: 'suggestion'},
    h('p', {class: 'quiet'}, 'The smallest change, which the agent has tried. Read it before you apply it.'),
    block(text, 'the policy'),
    flow.wildcard ? h('p', {class: 'quiet'}, 'To allow all hosts of the domain, match ',
      h('code', null, name(flow.wildcard)), ' instead.') : null,
    h('div', {class: 'row'}, preview, apply,
      text.length > LONGEST ? null : h('a', {href: link('change', {text})}, 'Edit it first')),
    why ? h('div', null, h('p', {class: 'quiet'}, why,
      ctx.session.mode === 'agent' ? ' Start nearside ui --write, or apply the policy on the command line:' : ''),
    ctx.session.mode === 'agent' ? block(`nearside apply -f - <<'END'\n${text.trimEnd()}\nEND\n`, 'the command')
      : null) : null,
    area);
}
