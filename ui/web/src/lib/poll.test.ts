import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { EVERY, pause, poll, type Outcome } from './poll'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const settle = () => vi.advanceTimersByTimeAsync(0)

test('waits grow while the box is away, within bounds', () => {
  const middle = () => 0.5
  expect([0, 1, 2, 3, 4, 5, 50].map((n) => pause(n, middle))).toEqual([EVERY, 2000, 4000, 8000, 16000, 30000, 30000])
  expect(pause(1, () => 0)).toBe(1600)
  expect(pause(1, () => 1)).toBe(2400)
})

test('asks each two seconds and not twice at a time', async () => {
  let running = 0
  let most = 0
  const attempt = vi.fn(async (): Promise<Outcome> => {
    most = Math.max(most, ++running)
    await new Promise((done) => setTimeout(done, 5000))
    running--
    return 'ok'
  })
  const p = poll(attempt, () => false)
  p.now()
  await vi.advanceTimersByTimeAsync(13_000)
  expect(attempt).toHaveBeenCalledTimes(2)
  expect(most).toBe(1)
  p.stop()
})

test('a throw counts as a failure, and success ends the back-off', async () => {
  const waits: number[] = []
  const outcomes = [() => Promise.reject(new Error('away')), () => Promise.reject(new Error('away')), async () => 'ok' as const]
  const p = poll(() => (outcomes.shift() ?? (async () => 'ok' as const))(), () => false, (ms) => waits.push(ms))
  await vi.advanceTimersByTimeAsync(20_000)
  expect(waits[0]).toBeLessThanOrEqual(2400)
  expect(waits[1]).toBeGreaterThanOrEqual(3200)
  expect(waits[2]).toBe(EVERY)
  p.stop()
})

test('rests while hidden and goes on when seen again', async () => {
  let hidden = true
  const attempt = vi.fn(async (): Promise<Outcome> => 'ok')
  const p = poll(attempt, () => hidden)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(attempt).toHaveBeenCalledTimes(1)
  hidden = false
  p.now()
  await settle()
  await vi.advanceTimersByTimeAsync(EVERY)
  expect(attempt).toHaveBeenCalledTimes(3)
  p.stop()
})

test.each(['done', 'stop'])('ends by %s', async (how) => {
  const attempt = vi.fn(async (): Promise<Outcome> => (how === 'done' ? 'done' : 'ok'))
  const p = poll(attempt, () => false)
  await settle()
  if (how === 'stop') p.stop()
  await vi.advanceTimersByTimeAsync(60_000)
  p.now()
  expect(attempt).toHaveBeenCalledTimes(1)
})
