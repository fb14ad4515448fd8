import { describe, expect, test } from 'vitest'
import { ago, bytes, clock, count, duration, list, percent, plural, sentence, shortID } from './format'

describe('bytes', () => {
  test.each([
    [0, '0 bytes'],
    [1023, '1023 bytes'],
    [1024, '1.0 KiB'],
    [98362432, '93.8 MiB'],
    [1024 ** 2 * 1023.6, '1.0 GiB'],
    [24 * 1024 ** 3, '24.0 GiB'],
    [412 * 1024 ** 3, '412 GiB'],
    [5000 * 1024 ** 5, '5000 PiB'],
    [null, 'unknown'],
    [undefined, 'unknown'],
    [-1, 'unknown'],
    [NaN, 'unknown'],
  ])('%s is %s', (n, want) => expect(bytes(n)).toBe(want))
})

describe('duration', () => {
  test.each([
    [0, '0 s'],
    [59.9, '59 s'],
    [60, '1 min'],
    [3600, '1 h'],
    [7322, '2 h 2 min'],
    [86400, '1 d'],
    [93784, '1 d 2 h'],
    [null, 'unknown'],
    [-5, 'unknown'],
  ])('%s s is %s', (n, want) => expect(duration(n)).toBe(want))
})

test('an age under two seconds is now', () => {
  expect(ago(0.4)).toBe('now')
  expect(ago(2)).toBe('2 s ago')
  expect(ago(null)).toBe('unknown')
})

test('counts have separators and are never zero when unknown', () => {
  expect(count(8192)).toBe('8,192')
  expect(count(0)).toBe('0')
  expect(count(null)).toBe('unknown')
  expect(percent(37.4)).toBe('37 %')
  expect(percent(null)).toBe('unknown')
})

test('plurals', () => {
  expect(plural(1, 'node')).toBe('1 node')
  expect(plural(0, 'node')).toBe('0 nodes')
  expect(plural(2, 'copy', 'copies')).toBe('2 copies')
})

test('a clock has two digits each', () => expect(clock(new Date(2026, 2, 1, 9, 5, 7))).toBe('09:05:07'))

test('an ID is known by its end', () => {
  expect(shortID('12D3KooWAttic1a2b3c4d')).toBe('1a2b3c4d')
  expect(shortID('')).toBe('')
})

test('names in a sentence', () => {
  expect(list([])).toBe('')
  expect(list(['a'])).toBe('a')
  expect(list(['a', 'b', 'c'])).toBe('a, b and c')
})

test('causes become sentences', () => {
  expect(sentence('the engine exits')).toBe('The engine exits.')
  expect(sentence('Done.')).toBe('Done.')
  expect(sentence('')).toBe('')
})
