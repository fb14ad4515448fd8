// When to ask again. Asks each two seconds while the page is in view and the
// box answers; backs off while it does not; rests while the page is hidden, so
// that a forgotten tab lets its session go idle.

export const EVERY = 2_000
const SLOWEST = 30_000

/** pause is the wait before the next try, after so many failures in a row.
 * Random spreads the pages of many readers when a box comes back. */
export function pause(failures: number, random: () => number = Math.random): number {
  if (failures === 0) return EVERY
  const wait = Math.min(SLOWEST, EVERY * 2 ** (failures - 1))
  return Math.round(wait * (0.8 + 0.4 * random()))
}

/** Outcome says how a try went: 'done' ends the polling. */
export type Outcome = 'ok' | 'failed' | 'done'

export interface Poller {
  /** now tries at once, whatever the wait. */
  now(): void
  stop(): void
}

/** poll calls attempt again and again; the next wait begins when one has ended,
 * so a slow box is never asked twice at a time. onWait tells when the next try
 * will be. */
export function poll(
  attempt: () => Promise<Outcome>,
  hidden: () => boolean = () => document.hidden,
  onWait: (ms: number) => void = () => {},
): Poller {
  let failures = 0
  let timer: ReturnType<typeof setTimeout> | undefined
  let trying = false
  let stopped = false

  async function run() {
    if (trying || stopped) return
    clearTimeout(timer)
    trying = true
    const outcome = await attempt().catch(() => 'failed' as const)
    trying = false
    if (outcome === 'done') stopped = true
    failures = outcome === 'failed' ? failures + 1 : 0
    schedule()
  }

  function schedule() {
    if (stopped || hidden()) return
    const wait = pause(failures)
    onWait(wait)
    timer = setTimeout(run, wait)
  }

  void run()
  return {
    now: () => void run(),
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
}
