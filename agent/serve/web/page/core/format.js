// Texts of times, counts, and sizes.

const NUMBER = new Intl.NumberFormat('en');

/** Returns a count with separators of thousands. */
export const count = n => NUMBER.format(n);

/** Returns a count with its noun: `plural(1, 'proxy', 'proxies')` is "1 proxy". */
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

/** Returns a share of 1 in percent. */
export function percent(x) {
  return `${x > 0 && x < 0.01 ? (100 * x).toFixed(2) : x < 0.1 ? (100 * x).toFixed(1) : (100 * x).toFixed(0)} %`;
}

/** Returns a size: bytes below 1,000, else kB, MB, or GB. */
export function bytes(n) {
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (n < 999.5 || unit === 'GB') return `${n < 9.95 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return '';
}

const STEPS = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

/** Returns a duration in seconds with its two largest units. */
export function duration(seconds) {
  seconds = Math.abs(seconds);
  if (seconds < 1) return seconds > 0 && seconds < 0.001 ? 'less than 1 ms' : `${Math.round(1000 * seconds)} ms`;
  const i = STEPS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = STEPS[i];
  const rest = STEPS[i + 1] && size > 1 && seconds < 100 * 86400 ? Math.floor(seconds % size / STEPS[i + 1][1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${STEPS[i + 1][0]}` : ''}`;
}

/** Returns whether a time of the API is set. */
export const isTime = text => Boolean(text) && !text.startsWith('0001-');

/** Returns how long ago, or in how long, a time of the API is. */
export function ago(text, now = Date.now()) {
  if (!isTime(text)) return 'never';
  const seconds = (now - Date.parse(text)) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(seconds)}`;
}

/** Returns a time of the API in UTC with seconds: "2026-11-29 14:05:06 UTC". */
export function utc(text) {
  if (!isTime(text)) return 'never';
  return new Date(text).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC').replace('Z', ' UTC');
}

/** Returns the printed name of a resource: KIND/MESH/NAME, or KIND/NAME for a global kind. */
export const key = r => [r.type || r.kind, r.mesh, r.name].filter(Boolean).join('/');
