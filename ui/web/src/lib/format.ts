// Numbers and times as text. What is not known says so; it is never "0".

export const UNKNOWN = 'unknown'

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

/** bytes formats a size in binary units with three digits at most. */
export function bytes(n: number | null | undefined): string {
  if (n == null || !Number.isFinite(n) || n < 0) return UNKNOWN
  let unit = 0
  // 1023.5 would round to "1024 MiB": go on to the next unit before that.
  while (n >= 1023.5 && unit < UNITS.length - 1) {
    n /= 1024
    unit++
  }
  const digits = unit === 0 || n >= 99.95 ? 0 : 1
  return `${n.toFixed(digits)} ${UNITS[unit]}`
}

/** count formats a whole number with separators, such as 8,192. */
export function count(n: number | null | undefined): string {
  return n == null || !Number.isFinite(n) ? UNKNOWN : n.toLocaleString('en-US', { maximumFractionDigits: 0 })
}

/** plural writes "1 node" and "2 nodes". */
export function plural(n: number, one: string, many = one + 's'): string {
  return `${count(n)} ${n === 1 ? one : many}`
}

/** duration formats seconds by their two largest units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds) || seconds < 0) return UNKNOWN
  const s = Math.floor(seconds)
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60]
  if (d > 0) return h > 0 ? `${d} d ${h} h` : `${d} d`
  if (h > 0) return m > 0 ? `${h} h ${m} min` : `${h} h`
  if (m > 0) return `${m} min`
  return `${s} s`
}

/** ago formats an age; under two seconds it is "now", so that it does not flicker. */
export function ago(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds) || seconds < 0) return UNKNOWN
  return seconds < 2 ? 'now' : `${duration(seconds)} ago`
}

/** clock formats a moment as hh:mm:ss of the reader's day. */
export function clock(at: Date): string {
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, '0')).join(':')
}

/** percent formats a share from 0 to 100. */
export function percent(n: number | null | undefined): string {
  return n == null || !Number.isFinite(n) ? UNKNOWN : `${Math.round(n)} %`
}

/** shortID is the end of a peer ID: their beginnings are all alike. */
export function shortID(id: string): string {
  return id.length > 8 ? id.slice(-8) : id
}

/** list joins names for a sentence. */
export function list(names: string[]): string {
  if (names.length < 2) return names.join('')
  return `${names.slice(0, -1).join(', ')} and ${names[names.length - 1]}`
}

/** sentence makes a cause, as programs word it, into a sentence. */
export function sentence(text: string): string {
  const whole = text.charAt(0).toUpperCase() + text.slice(1)
  return text === '' || /[.!?:]$/.test(text) ? whole : whole + '.'
}
