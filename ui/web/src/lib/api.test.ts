import { afterEach, expect, test, vi } from 'vitest'
import { linkCode, login, overview, Refusal } from './api'

afterEach(() => vi.unstubAllGlobals())

function answer(status: number, body: string) {
  const fake = vi.fn(async (_url: string, _init: RequestInit) => new Response(body, { status }))
  vi.stubGlobal('fetch', fake)
  return fake
}

test('a code is taken from the fragment', () => {
  expect(linkCode('#code=abc234')).toBe('abc234')
  expect(linkCode('#other=1&code=x')).toBe('x')
  expect(linkCode('#nodes')).toBe('')
  expect(linkCode('')).toBe('')
})

test('a login posts JSON to a relative address', async () => {
  const fake = answer(200, '{}')
  await login('abc')
  const [url, init] = fake.mock.calls[0]!
  expect(url).toBe('admin/v1/session')
  expect(init).toMatchObject({ method: 'POST', body: '{"code":"abc"}', credentials: 'same-origin' })
})

test('a refusal carries what the box says', async () => {
  answer(401, '{"error":{"message":"m","type":"t","code":"c"},"llmgw":{"node":"n","hint":"h","request_id":"r"}}')
  await expect(overview()).rejects.toMatchObject({ status: 401, message: 'm', code: 'c', hint: 'h', requestID: 'r' })
})

test('a refusal of a proxy in between is no riddle', async () => {
  answer(502, '<html>')
  const e = await overview().catch((e) => e)
  expect(e).toBeInstanceOf(Refusal)
  expect(e.message).toContain('502')
})
