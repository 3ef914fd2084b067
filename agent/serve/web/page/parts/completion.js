// Completion of resources in YAML by the JSON Schema of their kind.

import {get, path} from '../core/api.js';
import {kinds} from './kinds.js';

const schemas = new Map(); // kind → promise of its schema, or of null

/** Returns the JSON Schema of a kind, or null if there is none. */
export function schemaOf(kind) {
  if (!schemas.has(kind)) {
    schemas.set(kind, get(path`/v1/schemas/${kind}`).catch(err => {
      if (![400, 403, 404].includes(err.status)) schemas.delete(kind); // try again later
      return null;
    }));
  }
  return schemas.get(kind);
}

/**
 * Returns the place of a caret in a text of YAML: `{type, path, key, prefix, from, siblings}`. `path` are the keys
 * above, with "[]" for items of lists; `key` is the field whose value is written, or null while a key
 * is written; `prefix` begins at the index `from`.
 */
export function place(text, caret) {
  const before = text.slice(0, caret);
  const start = Math.max(before.lastIndexOf('\n---'), before.startsWith('---') ? 0 : -1);
  const lines = before.slice(start < 0 ? 0 : before.indexOf('\n', start + 1) + 1).split('\n');
  const current = lines.pop();
  const end = text.indexOf('\n---', caret);
  const document = lines.join('\n') + '\n' + text.slice(caret - current.length, end < 0 ? undefined : end);
  const type = document.match(/^type:\s*["']?([A-Za-z]+)/m)?.[1] || '';
  const tokens = tokensOf(current);
  const last = tokens.at(-1);
  const flow = flowOf(current.slice(last?.value ?? tokens.content));
  const key = last?.key && last.value !== undefined ? last.key : null;
  const column = key ? last.column : tokens.content;
  let limit = column, dashes = column;
  const up = [];
  const take = list => {
    for (const token of list.toReversed()) {
      if (token.key !== undefined && token.column < limit) {
        up.unshift(token.key);
        limit = dashes = token.column;
      } else if (token.dash && token.column < dashes) {
        up.unshift('[]');
        dashes = token.column;
        limit = token.column + 1;
      }
    }
  };
  take(tokens.slice(0, key ? -1 : undefined));
  const siblings = new Set();
  for (const line of lines.toReversed()) {
    if (!line.trim() || /^\s*#/.test(line)) continue;
    const above = tokensOf(line);
    for (const token of above) if (token.key && token.column === column && limit === column) siblings.add(token.key);
    take(above);
    if (limit === 0 && dashes === 0) break;
  }
  if (flow) {
    const inside = key ? [...up, key, ...flow.path] : [...up, ...flow.path];
    return {type, path: inside, key: flow.key, prefix: flow.prefix, from: caret - flow.prefix.length,
      siblings: new Set(flow.keys)};
  }
  const content = key ? current.slice(last.value) : current.slice(last?.dash ? last.column + 2 : tokens.content);
  const prefix = content.trimStart();
  return {type, path: up, key, prefix, from: caret - prefix.length, siblings};
}

// The dashes and the key of a line, with their columns.
function tokensOf(line) {
  const list = [];
  let at = line.length - line.trimStart().length;
  while (/^-(\s|$)/.test(line.slice(at))) {
    list.push({dash: true, column: at});
    at += 1 + (line.slice(at + 1).match(/^\s*/)[0].length);
  }
  list.content = at;
  const m = line.slice(at).match(/^(["']?)([\w./-]+)\1:(\s|$)/);
  if (m) list.push({key: m[2], column: at, value: at + m[0].length});
  return list;
}

// The place within braces and brackets of one line that are still open, or null.
function flowOf(text) {
  const open = [];
  let word = '', quote = '';
  for (const c of text) {
    const top = open.at(-1);
    if (quote) {
      if (c === quote) quote = '';
      word += c;
    } else if (c === '"' || c === "'") {
      quote = c;
      word += c;
    } else if (c === '{' || c === '[') {
      open.push({list: c === '[', key: null, keys: []});
      word = '';
    } else if (c === '}' || c === ']') {
      open.pop();
      word = '';
    } else if (c === ',') {
      if (top) top.key = null;
      word = '';
    } else if (c === ':' && top && !top.list && top.key === null) {
      top.key = word.trim();
      top.keys.push(top.key);
      word = '';
    } else {
      word += c;
    }
  }
  if (!open.length) return null;
  const path = open.flatMap((o, i) => o.list ? ['[]'] : i < open.length - 1 ? [o.key] : []);
  const top = open.at(-1);
  return {path, key: top.list ? null : top.key, prefix: word.trimStart(), keys: top.keys};
}

function descend(schema, path) {
  let at = schema;
  for (const key of path) {
    if (!at) return null;
    at = key === '[]' ? at.items : at.properties?.[key] ?? (typeof at.additionalProperties === 'object'
      ? at.additionalProperties : null);
  }
  return at;
}

/** Returns suggestions at a caret: `{from, list: [{value, note, insert}]}`. */
export async function suggest(text, caret) {
  const at = place(text, caret);
  const none = {from: at.from, list: []};
  if (/[\s"']/.test(at.prefix) || text.slice(caret).match(/^[\w-]/)) return none;
  if (at.key === 'type' && !at.path.length) {
    return match(at, (await kinds()).map(k => ({value: k.kind, note: k.policy ? 'policy' : '', insert: k.kind})));
  }
  if (!at.type) {
    return at.path.length || at.key ? none : match(at, [{value: 'type', note: 'kind of the resource',
      insert: 'type: '}]);
  }
  const schema = await schemaOf(at.type);
  if (!schema) return none;
  if (at.key) {
    const field = descend(schema, [...at.path, at.key]);
    return match(at, values(field).map(v => ({value: String(v), insert: String(v), note: v === field?.default
      ? 'default' : ''})));
  }
  const object = descend(schema, at.path);
  if (object && !object.properties) return match(at, values(object).map(v => ({value: String(v), insert: String(v),
    note: ''})));
  return match(at, Object.entries(object?.properties || {}).filter(([k]) => !at.siblings.has(k) &&
    k !== 'creationTime' &&
    k !== 'modificationTime').map(([k, field]) => ({value: k, note: field.description || '',
    insert: k + (field.properties || field.items ? ':' : ': ')})));
}

function values(field) {
  if (!field) return [];
  if (field.const !== undefined) return [field.const];
  if (field.enum) return field.enum;
  return [field.type].flat().includes('boolean') ? [true, false] : [];
}

function match(at, list) {
  const wanted = at.prefix.toLowerCase();
  const found = list.filter(s => s.value.toLowerCase().includes(wanted) && s.value !== at.prefix);
  found.sort((a, b) => b.value.toLowerCase().startsWith(wanted) - a.value.toLowerCase().startsWith(wanted));
  return {from: at.from, list: found.slice(0, 50)};
}
