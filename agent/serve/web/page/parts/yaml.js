// Resources as YAML.

const PLAIN = /^([A-Za-z_/][A-Za-z0-9_./@+ -]*|\d+(ns|us|ms|s|m|h)|\d+\.\d+\.\d+\.\d+)$/;
const WORDS = /^(true|false|yes|no|on|off|null|y|n|~)$/i;

/** Returns a value as YAML in block style, in the order of its members. */
export function toYAML(value) {
  const out = [];
  block(value, '', out);
  return out.join('\n') + '\n';
}

function block(value, indent, out) {
  if (Array.isArray(value)) {
    for (const item of value) {
      if (!nested(item)) {
        out.push(`${indent}- ${scalar(item)}`);
        continue;
      }
      const from = out.length;
      block(item, indent + '  ', out);
      out[from] = `${indent}- ${out[from].slice(indent.length + 2)}`;
    }
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    const name = text(key);
    if (nested(item)) {
      out.push(`${indent}${name}:`);
      block(item, indent + '  ', out);
    } else if (typeof item === 'string' && item.includes('\n') &&
      !/^\s|[\u0000-\u0008\u000b-\u001f\u007f\u0085\u2028\u2029]/
      .test(item)) {
      const lines = item.replace(/\n+$/, '').split('\n');
      const ends = item.length - item.replace(/\n+$/, '').length;
      out.push(`${indent}${name}: |${ends === 0 ? '-' : ends > 1 ? '+' : ''}`);
      for (const line of [...lines, ...Array(Math.max(0, ends - 1)).fill('')]) out.push(line ? `${indent}  ${line}`
        : '');
    } else {
      out.push(`${indent}${name}: ${scalar(item)}`);
    }
  }
}

const nested = v => v !== null && typeof v === 'object' && (Array.isArray(v) ? v.length : Object.keys(v).length) > 0;

function scalar(v) {
  if (Array.isArray(v)) return '[]';
  if (v !== null && typeof v === 'object') return '{}';
  return typeof v === 'string' ? text(v) : String(v);
}

function text(s) {
  return PLAIN.test(s) && !WORDS.test(s) && !s.endsWith(' ') ? s
    : JSON.stringify(s).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g,
    c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
