// What the page makes of the answers: states to tones, what to type, sums.

import { list, plural, sentence } from './format'
import type { Device, Hardware, MeshSetting, Model, Node, Overview, Replica } from './types'

/** Tone is how a state looks. Each has a shape of its own besides its colour. */
export type Tone = 'ok' | 'busy' | 'warn' | 'bad' | 'idle'

const NODE_TONES: Record<string, Tone> = { self: 'ok', live: 'ok', suspect: 'warn', dead: 'bad', left: 'idle' }

export function nodeTone(n: Node): Tone {
  return n.stopping ? 'warn' : (NODE_TONES[n.state] ?? 'idle')
}

export function nodeState(n: Node): string {
  if (n.stopping) return 'stopping'
  if (n.draining) return n.state === 'self' ? 'this node, drained' : `${n.state}, drained`
  if (n.cordoned) return n.state === 'self' ? 'this node, cordoned' : `${n.state}, cordoned`
  return n.state === 'self' ? 'this node' : n.state
}

/** stale: what is shown of the node is old, because nobody hears it. */
export function stale(n: Node): boolean {
  return n.state === 'dead' || n.state === 'left' || n.state === 'suspect'
}

const REPLICA_TONES: Record<string, Tone> = {
  starting: 'busy',
  loading: 'busy',
  warming: 'busy',
  ready: 'ok',
  stopping: 'idle',
  backoff: 'warn',
  quarantined: 'bad',
  failed: 'bad',
}

const REPLICA_WORDS: Record<string, string> = {
  warming: 'testing',
  backoff: 'restarting soon',
  quarantined: 'crashed too often',
}

export function replicaTone(r: Replica): Tone {
  return REPLICA_TONES[r.state] ?? 'idle'
}

export function replicaState(r: Replica): string {
  return REPLICA_WORDS[r.state] ?? r.state
}

/** ModelView is a model's line: its state in words and the next step. */
export interface ModelView {
  tone: Tone
  state: string
  detail: string
  type: string
}

/** quote makes a name safe to paste into a shell. */
export function quote(name: string): string {
  return /^[A-Za-z0-9._:/@-]+$/.test(name) && !name.startsWith('-') ? name : `'${name.replaceAll("'", `'\\''`)}'`
}

/** modelView takes the words that a command line begins with, such as "llmgw". */
export function modelView(m: Model, replicas: Replica[], command: string): ModelView {
  const load = `${command} load ${quote(m.name)}`
  if (m.state === 'stopped') {
    return { tone: 'idle', state: 'stopped', detail: 'Requests are refused.', type: `${command} start ${quote(m.name)}` }
  }
  if (m.loaded) {
    const where = m.loaded_on.length > 0 ? `On ${list(m.loaded_on)}.` : ''
    return { tone: 'ok', state: 'loaded', detail: where, type: '' }
  }
  const own = replicas.filter((r) => r.model === m.name || r.model === m.id)
  const coming = own.find((r) => replicaTone(r) === 'busy')
  if (m.wanted === 0 && m.problem === '' && !coming) {
    return { tone: 'idle', state: 'not loaded', detail: diskDetail(m), type: load }
  }
  if (coming) return { tone: 'busy', state: replicaState(coming), detail: `On ${coming.node_name}.`, type: m.fix }
  if (m.problem === '') return { tone: 'busy', state: 'waiting', detail: 'Waiting for a node to take it.', type: m.fix }
  // Without a replica that failed, it may only be early: that is no alarm yet.
  const failed = own.some((r) => replicaTone(r) === 'bad')
  return { tone: failed ? 'bad' : 'warn', state: 'not loaded', detail: sentence(m.problem), type: m.fix }
}

function diskDetail(m: Model): string {
  return m.on_disk.length > 0 ? `On the disk of ${list(m.on_disk)}.` : 'On the disk of no node that is here.'
}

/** usedShare is the used part of a device's memory, 0 to 1; null: not known. */
export function usedShare(total: number | null, free: number | null): number | null {
  if (total == null || free == null || total <= 0) return null
  return Math.min(1, Math.max(0, (total - free) / total))
}

/** memories are the devices to draw a bar for. A box that told none still has
 * its RAM, known or not. */
export function memories(h: Hardware): Device[] {
  if (h.devices.length > 0) return h.devices
  const ram = { memory_total: h.ram_total, memory_free: h.ram_free, busy_percent: null, celsius: null }
  return [{ id: 'cpu', kind: 'cpu', name: 'CPU', ...ram }]
}

export function gpus(h: Hardware): Device[] {
  return h.devices.filter((d) => d.kind !== 'cpu')
}

/** lacksEngine: the node is here and can serve nothing but simulations. What a
 * node that is away has is not known. */
export function lacksEngine(n: Node): boolean {
  return !stale(n) && n.engines.every((e) => e.name === 'sim')
}

/** summary is the line under the verdict. */
export function summary(o: Overview): string {
  const loaded = o.models.filter((m) => m.loaded).length
  const flying = o.replicas.reduce((sum, r) => sum + (r.in_flight ?? 0), 0)
  const parts = [
    `${o.status.mesh.live} of ${plural(o.status.mesh.members, 'node')} live`,
    o.models.length === 0 ? 'no models' : `${loaded} of ${plural(o.models.length, 'model')} loaded`,
    `${plural(flying, 'request')} in flight`,
  ]
  return parts.join(' · ')
}

/** tidy replaces null lists by empty ones, in case the answer is of an older
 * or a broken daemon: an odd field must not blank the page. */
export function tidy(o: Overview): Overview {
  const status = o.status
  return {
    ...o,
    status: {
      ...status,
      problems: status.problems ?? [],
      node: { ...status.node, command: status.node.command || 'llmgw', api: status.node.api ?? [], mesh: status.node.mesh ?? [] },
    },
    nodes: (o.nodes ?? []).map(tidyNode),
    seen: (o.seen ?? []).map((s) => ({ ...s, addresses: s.addresses ?? [] })),
    models: (o.models ?? []).map((m) => ({
      ...m,
      aliases: m.aliases ?? [],
      require: m.require ?? [],
      forbid: m.forbid ?? [],
      loaded_on: m.loaded_on ?? [],
      on_disk: m.on_disk ?? [],
    })),
    replicas: (o.replicas ?? []).map((r) => ({ ...r, last_lines: r.last_lines ?? [] })),
    settings: o.settings ?? [],
  }
}

function tidyNode(n: Node): Node {
  const h = n.hardware ?? { arch: '', os: '', threads: null, ram_total: null, ram_free: null }
  return {
    ...n,
    api: n.api ?? [],
    engines: n.engines ?? [],
    fetches: n.fetches ?? [],
    labels: n.labels ?? [],
    cordoned_devices: n.cordoned_devices ?? [],
    hardware: { ...h, devices: h.devices ?? [], notes: h.notes ?? [] },
  }
}

/** settingOfMesh is what the mesh says. */
export function settingOfMesh(s: MeshSetting): string {
  if (!s.set) return 'not set'
  return s.value === '' ? 'empty' : s.value
}

/** settingHere says where the value that is in force here came from. */
export function settingHere(s: MeshSetting): string {
  if (s.pending !== '') return `a restart brings ${s.pending}`
  if (s.origin === 'default' || s.origin === 'mesh setting') return `by ${s.origin}`
  return `by ${s.origin}, which has precedence`
}

/** curl is a line that asks a model, with the key left to a shell variable. */
export function curl(base: string, model: string): string {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'Hello' }] })
  return `curl -N ${base}/chat/completions -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '${body.replaceAll("'", `'\\''`)}'`
}
