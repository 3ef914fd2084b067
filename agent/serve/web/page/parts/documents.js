// Texts with several documents of YAML: their keys, and small edits that keep everything else.

const SHADOW = 'kuma.io/effect';

/** Returns the documents of a text, `{from, to, text}`, without empty ones. */
export function split(text) {
  const out = [];
  let from = 0;
  for (const m of [...text.matchAll(/^---(?:[ \t].*)?\r?$/gm), null]) {
    const to = m ? m.index : text.length;
    const part = text.slice(from, to);
    if (part.split('\n').some(line => line.trim() && !/^\s*#/.test(line))) out.push({from, to, text: part});
    from = m ? m.index + m[0].length + 1 : to;
  }
  return out;
}

const scalar = (text, field) => {
  const m = text.match(new RegExp(`^"?${field}"?:[ \\t]*(.*?)[ \\t]*(?:#.*)?\\r?$`, 'm'));
  return m ? m[1].replace(/^(["'])(.*)\1$/, '$2') : '';
};

/** Returns the keys of the resources of a text, `{type, mesh, name}`, as far as they are written plainly. */
export function keys(text) {
  return split(text).map(d => {
    try {
      const r = JSON.parse(d.text);
      return {type: r.type || '', mesh: r.mesh || '', name: r.name || ''};
    } catch {
      return {type: scalar(d.text, 'type'), mesh: scalar(d.text, 'mesh'), name: scalar(d.text, 'name')};
    }
  });
}

/** Returns whether a document has the label of shadow policies. */
export const isShadow = text => /^\s*"?kuma\.io\/effect"?:\s*["']?shadow["']?\s*(#.*)?$/m.test(text) ||
  /\{[^}]*"?kuma\.io\/effect"?:\s*["']?shadow/.test(text);

/** Returns the text with or without the label of shadow policies in each document of a kind that `policy` accepts. */
export function withShadow(text, on, policy) {
  let out = text;
  for (const d of split(text).toReversed()) {
    const type = scalar(d.text, 'type');
    if (!policy(type) || isShadow(d.text) === on) continue;
    out = out.slice(0, d.from) + (on ? add(d.text) : remove(d.text)) + out.slice(d.to);
  }
  return out;
}

function add(text) {
  const flow = text.match(/^labels:[ \t]*\{[ \t]*/m);
  if (flow) {
    const at = flow.index + flow[0].length;
    return `${text.slice(0, at)}${SHADOW}: shadow${/^\s*\}/.test(text.slice(at)) ? '' : ', '}${text.slice(at)}`;
  }
  const block = text.match(/^labels:[ \t]*(#.*)?\r?\n([ \t]*)/m);
  if (block) {
    const at = block.index + block[0].length;
    return `${text.slice(0, at)}${SHADOW}: shadow\n${block[2]}${text.slice(at)}`;
  }
  const name = text.match(/^name:.*\r?\n?/m);
  if (!name) return text;
  const at = name.index + name[0].length;
  return `${text.slice(0, at)}${name[0].endsWith('\n') ? '' : '\n'}labels:\n  ${SHADOW}: shadow\n${text.slice(at)}`;
}

function remove(text) {
  const label = String.raw`"?kuma\.io/effect"?:[ \t]*["']?shadow["']?`;
  return text.replace(new RegExp(String.raw`^(labels:[ \t]*\{)([^}\n]*)\}`, 'm'), (all, open, inside) => {
    const rest = inside.split(',').filter(part => !new RegExp(`^\\s*${label}\\s*$`).test(part));
    return rest.length ? `${open}${rest.join(',').replace(/^\s+/, '')}}` : '';
  }).replace(new RegExp(String.raw`^labels:[ \t]*\r?\n[ \t]+${label}[ \t]*\r?\n(?![ \t]+\S)`, 'm'), '')
    .replace(new RegExp(String.raw`^[ \t]+${label}[ \t]*\r?\n`, 'm'), '');
}
