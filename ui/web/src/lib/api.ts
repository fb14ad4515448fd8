// Calls of the admin API. URLs are relative, so a path prefix in front works.

import type { Overview, SessionRequest } from './types'
import { tidy } from './view'

/** PATIENCE bounds one request: a box that was unplugged never answers. */
const PATIENCE = 10_000

/** Refusal is an answer that says no. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string,
    readonly hint: string,
    readonly requestID: string,
  ) {
    super(message)
  }
}

/** overview asks for everything that the page shows. */
export async function overview(): Promise<Overview> {
  const answer = await call('GET', 'overview')
  return tidy((await answer.json()) as Overview)
}

/** login redeems a link's code for a session cookie. */
export async function login(code: string): Promise<void> {
  const body: SessionRequest = { code }
  await call('POST', 'session', body)
}

/** logout ends the session. */
export async function logout(): Promise<void> {
  await call('DELETE', 'session')
}

async function call(method: string, path: string, body?: unknown): Promise<Response> {
  const answer = await fetch(`admin/v1/${path}`, {
    method,
    credentials: 'same-origin',
    cache: 'no-store',
    signal: AbortSignal.timeout(PATIENCE),
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }),
  })
  if (answer.ok) return answer
  throw await refusal(answer)
}

async function refusal(answer: Response): Promise<Refusal> {
  try {
    const { error, llmgw } = await answer.json()
    return new Refusal(answer.status, String(error.message), String(error.code), llmgw.hint ?? '', llmgw.request_id ?? '')
  } catch {
    return new Refusal(answer.status, `The box answered ${answer.status} without saying why.`, '', '', '')
  }
}

/** linkCode takes the code out of a URL fragment such as "#code=abc". */
export function linkCode(hash: string): string {
  return new URLSearchParams(hash.replace(/^#/, '')).get('code') ?? ''
}
