// Writes resources and files, each after a dry run, and waits until they are in force.

import {get, own, query, send} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {key} from '../core/format.js';
import {link} from '../core/route.js';
import {command, failure} from '../core/widgets.js';
import {action} from './diff.js';
import {historyPath, kindOf, resourcePath} from './kinds.js';
import {waitFor} from './wait.js';

/** Returns why a session may not write, or "". */
export function readOnly(session) {
  if (session.mode === 'static') return 'An export cannot write.';
  if (session.mode === 'files') return 'Without an agent the page only reads files; edit them in an editor.';
  return session.write ? '' : 'This page is read-only.';
}

/** Returns how to write without the page: a sentence and a command, or null if the page may write. */
export function instead(session, line) {
  const why = readOnly(session);
  if (!why) return null;
  return h('p', {class: 'quiet instead'}, why, session.mode === 'agent'
    ? [' Start it with ', command('nearside ui --write'),
    line ? [', or run ', command(line)] : null] : null);
}

/** Returns what a write has changed and warned of. */
export function written(answer) {
  return h('div', {class: 'notice good'}, h('ul', {class: 'changes'},
    answer.changes.map(c => h('li', null, action(c.action), ' ', name(key(c)),
    c.revision ? h('span', {class: 'quiet'}, ` revision ${c.revision}`) : null))),
  answer.warnings?.length ? h('ul', null, answer.warnings.map(w => h('li', {class: 'warn'}, name(w, 600)))) : null);
}

/**
 * Applies a text to the resources of the API: a dry run, then the write, then the wait, shown in an element. With
 * `etag`, `only` is the one resource of the text, which is written only if it has not changed since. Returns
 * whether it was written.
 */
export async function apply(el, text, {etag, only, signal}) {
  const kind = etag && only && await kindOf(only.type);
  const write = dryRun => kind
    ? send('PUT', query(resourcePath(kind, only), {dryRun}), text, {headers: {'If-Match': etag}, signal})
    : send('POST', query('/v1/apply', {dryRun}), text, {signal});
  return run(el, write, signal);
}

/** Deletes a resource as {@link apply} writes one. */
export async function remove(el, resource, {etag, signal}) {
  const kind = await kindOf(resource.type);
  return run(el, dryRun => send('DELETE', query(resourcePath(kind, resource), {dryRun}), undefined,
    {headers: etag ? {'If-Match': etag} : {}, signal}), signal);
}

/** Restores a revision as {@link apply} writes a resource. */
export const rollback = (el, resource, revision, {signal}) => run(el, dryRun =>
  send('POST', '/v1/rollback', {...resource, revision, dryRun}, {signal}), signal);

async function run(el, write, signal) {
  replace(el, h('p', {class: 'quiet', role: 'status'}, 'Checking…'));
  let answer;
  try {
    await write(true);
    replace(el, h('p', {class: 'quiet', role: 'status'}, 'Writing…'));
    answer = await write(false);
  } catch (err) {
    if (err.name === 'AbortError') return false;
    replace(el, problem(err));
    return false;
  }
  const waiting = h('div', {'aria-live': 'polite'});
  replace(el, written(answer), waiting);
  await waitFor(waiting, answer.changes.filter(c => c.action !== 'unchanged').map(c => ({...c,
    gone: c.action === 'deleted'})), signal);
  return answer;
}

/**
 * Takes changes back, the last one first: what was created is deleted, and what was changed or deleted gets its
 * content from before.
 */
export async function undo(el, changes, signal) {
  for (const c of changes.toReversed()) {
    const kind = await kindOf(c.type), part = h('div');
    el.append(part);
    if (c.action === 'created') {
      if (!await remove(part, c, {signal})) return false;
      continue;
    }
    const before = (await get(historyPath(kind, c), signal)).items.findLast(i => i.revision < c.revision &&
      i.resource);
    if (!before) {
      replace(part, h('p', {class: 'notice bad'}, 'No earlier revision of ', name(key(c)), ' is known.'));
      return false;
    }
    const {type, mesh, name: resource} = c;
    if (!await rollback(part, {type, mesh, name: resource}, before.revision, {signal})) return false;
  }
  return true;
}

/** Returns the description of a refused write, with what to do. */
export function problem(err) {
  const file = err.type === '/problems/owned-elsewhere' &&
    err.message.match(/ belongs to file:(.*?) and cannot/)?.[1];
  return [failure(err), file ? h('p', null, h('a', {href: link('change', {file})}, `Edit ${file}`)) : null,
    err.status === 412 ? h('p', null,
      'The resource has changed since the page read it. Reload it, and write your change again.') : null];
}

/** Reads a file of resources. Returns `{text, etag}`. */
export const readFile = path => own('GET', query('ui/files', {path}));

/**
 * Saves a file of resources, and waits until the agent has read it. `resources` are those that change, with their
 * action. Returns whether it was saved.
 */
export async function saveFile(el, file, text, etag, resources, signal) {
  replace(el, h('p', {class: 'quiet', role: 'status'}, 'Writing the file…'));
  const before = await Promise.all(resources.slice(0, 20).map(async r => ({...r, gone: r.action === 'deleted',
    after: await revision(r)})));
  try {
    await own('PUT', query('ui/files', {path: file}), {text}, {'If-Match': etag});
  } catch (err) {
    replace(el, problem(err));
    return false;
  }
  const waiting = h('div', {'aria-live': 'polite'});
  replace(el, h('p', {class: 'notice good'}, 'Saved ', name(file, 200), '.'), waiting);
  await waitFor(waiting, before, signal);
  return true;
}

// The revision of a resource before a change of its file: 0 if it does not exist yet.
async function revision({type, mesh, name}) {
  try {
    return (await send('POST', '/v1/wait', {type, mesh: mesh || undefined, name, timeout: '0s'})).revision;
  } catch (err) {
    return err.status === 404 ? 0 : undefined; // without it, the page cannot wait for the change
  }
}
