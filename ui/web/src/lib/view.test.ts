import { describe, expect, test } from 'vitest'
import type { Hardware, MeshSetting, Model, Node, Overview, Replica } from './types'
import { curl, lacksEngine, memories, modelView, nodeState, nodeTone, quote, replicaTone, settingHere, settingOfMesh, stale, summary, tidy, usedShare } from './view'

function model(over: Partial<Model>): Model {
  return {
    id: 'm', name: 'm', aliases: [], require: [], forbid: [], source: '', digest: '', size_bytes: null, format: 'gguf', architecture: '',
    state: 'served', wanted: 0, max: 0, idle_seconds: 0, limits: { context: 0, max_output: 0, end_repetition: false }, declared_on: '', declared_in: '', pin: '', embeddings: false, context: null, memory_need: null, loaded: false,
    loaded_on: [], on_disk: [], problem: '', fix: '', ...over,
  }
}

function replica(over: Partial<Replica>): Replica {
  return {
    model: 'm', slot: 0, node: 'p', node_name: 'attic', epoch: 1, state: 'ready', state_seconds: null, reason: '',
    last_lines: [], engine: 'llamacpp', profile: '', device: '', context: null, slots: null, in_flight: null,
    waiting: null, kv_tokens: null, kv_use: null,
    restarts: 0, adopted: false, pid: null, ...over,
  }
}

const nothing: Hardware = { arch: '', os: '', threads: null, ram_total: null, ram_free: null, devices: [], notes: [] }

function node(over: Partial<Node>): Node {
  return {
    id: 'p', name: 'attic', labels: [], location: '', cordoned: false, draining: false, cordoned_devices: [], role: 'admin', state: 'live', version: '', last_contact_seconds: null, skew_seconds: null, round_trip_ms: null, last_sync_seconds: null, mismatch: '', remembers_deletions: 0,
    path: '', api: [], stopping: false, hardware: nothing, engines: [], disk_free: null, fetches: [], ...over,
  }
}

describe('what to type for a model', () => {
  test('not loaded: load it', () => {
    const v = modelView(model({ name: 'SmolLM2', on_disk: ['attic'] }), [], 'llmgw')
    expect(v).toMatchObject({ tone: 'idle', state: 'not loaded', type: 'llmgw load SmolLM2', detail: 'On the disk of attic.' })
  })
  test('a daemon with a state directory of its own is addressed so', () => {
    expect(modelView(model({}), [], 'llmgw --state-dir D').type).toBe('llmgw --state-dir D load m')
  })
  test('loaded: nothing, and where', () => {
    expect(modelView(model({ loaded: true, wanted: 1, loaded_on: ['attic', 'cellar'] }), [], 'llmgw')).toMatchObject({
      tone: 'ok', detail: 'On attic and cellar.', type: '',
    })
  })
  test('stopped: start it', () => {
    expect(modelView(model({ state: 'stopped', loaded: false }), [], 'llmgw').type).toBe('llmgw start m')
  })
  test('on its way: its state and node', () => {
    expect(modelView(model({ wanted: 1 }), [replica({ state: 'loading' })], 'llmgw')).toMatchObject({ tone: 'busy', state: 'loading', type: '' })
  })
  test('on demand: its problem and its way when requests ask for it', () => {
    const m = model({ max: 1, on_disk: ['attic'] })
    expect(modelView(m, [], 'llmgw')).toMatchObject({ tone: 'idle', state: 'not loaded', type: 'llmgw load m' })
    expect(modelView(m, [replica({ state: 'loading' })], 'llmgw')).toMatchObject({ tone: 'busy', state: 'loading' })
    expect(modelView({ ...m, problem: 'no room' }, [], 'llmgw')).toMatchObject({ tone: 'warn', detail: 'No room.' })
  })
  test('another model on its way says nothing about this one', () => {
    expect(modelView(model({ wanted: 1 }), [replica({ model: 'n', state: 'loading' })], 'llmgw').state).toBe('waiting')
  })
  test('wanted and failing: why, and the fix', () => {
    const m = model({ wanted: 1, problem: 'no room', fix: 'llmgw unload x' })
    expect(modelView(m, [replica({ state: 'failed' })], 'llmgw')).toMatchObject({ tone: 'bad', detail: 'No room.', type: 'llmgw unload x' })
    expect(modelView(m, [], 'llmgw')).toMatchObject({ tone: 'warn', detail: 'No room.' })
  })
  test('a replica on its way outweighs the word that it is not there yet', () => {
    expect(modelView(model({ wanted: 1, problem: 'loading on attic' }), [replica({ state: 'loading' })], 'llmgw').tone).toBe('busy')
  })
})

test('names are safe to paste into a shell', () => {
  expect(quote('org/model:7b-q4_K.M')).toBe('org/model:7b-q4_K.M')
  expect(quote('a b')).toBe("'a b'")
  expect(quote("x'; rm -rf ~")).toBe("'x'\\''; rm -rf ~'")
  expect(quote('-rf')).toBe("'-rf'")
  expect(quote('$(id)')).toBe("'$(id)'")
})

test('a curl line keeps odd names inside its quotes', () => {
  expect(curl('http://box:8770/v1', "it's")).toContain(`it'\\''s`)
  expect(curl('http://box:8770/v1', 'm')).toContain('http://box:8770/v1/chat/completions')
})

test('memory that is not known is not zero', () => {
  expect(usedShare(null, 1)).toBeNull()
  expect(usedShare(10, null)).toBeNull()
  expect(usedShare(0, 0)).toBeNull()
  expect(usedShare(10, 4)).toBeCloseTo(0.6)
  expect(usedShare(10, 12)).toBe(0) // a driver may tell more free than there is
})

test('a box that told no device still has a bar for its RAM', () => {
  expect(memories({ ...nothing, ram_total: 8 })).toMatchObject([{ kind: 'cpu', memory_total: 8, memory_free: null }])
})

test('states of nodes', () => {
  expect(nodeState(node({ state: 'self' }))).toBe('this node')
  expect(nodeState(node({ state: 'self', cordoned: true }))).toBe('this node, cordoned')
  expect(nodeState(node({ cordoned: true }))).toBe('live, cordoned')
  expect(nodeState(node({ cordoned: true, draining: true }))).toBe('live, drained')
  expect(nodeTone(node({ state: 'live', stopping: true }))).toBe('warn')
  expect(nodeTone(node({ state: 'new in a later version' }))).toBe('idle')
  expect(stale(node({ state: 'dead' }))).toBe(true)
  expect(stale(node({ state: 'self' }))).toBe(false)
})

test('every replica state has a tone, an unknown one too', () => {
  const states = ['starting', 'loading', 'warming', 'ready', 'stopping', 'backoff', 'quarantined', 'failed', 'odd']
  expect(states.map((state) => replicaTone(replica({ state })))).toEqual(
    ['busy', 'busy', 'busy', 'ok', 'idle', 'warn', 'bad', 'bad', 'idle'],
  )
})

const bare = {
  schema_version: 1,
  status: {
    schema_version: 1, verdict: 'OK', problems: null,
    node: { id: '', name: 'n', version: '', pid: 1, state_dir: '', api: null, mesh: null, uptime_seconds: 0, ui_hint: '', command: '' },
    mesh: { id: 'x', provisional: true, members: 1, live: 1 },
  },
  nodes: null, seen: null, models: null, replicas: null, settings: null,
} as unknown as Overview

test('null lists become empty ones', () => {
  const o = tidy(bare)
  expect([o.nodes, o.seen, o.models, o.replicas, o.status.problems, o.status.node.api]).toEqual([[], [], [], [], [], []])
  expect(o.status.node.command).toBe('llmgw')
  const odd = tidy({ ...bare, nodes: [{ id: 'p', name: 'n', state: 'live' }] } as unknown as Overview)
  expect(odd.nodes[0]?.hardware.devices).toEqual([])
})

test('the summary counts over the whole mesh', () => {
  expect(summary(tidy(bare))).toBe('1 of 1 node live · no models · 0 requests in flight')
  const o = { ...tidy(bare), models: [model({ loaded: true }), model({})], replicas: [replica({ in_flight: 2 }), replica({}), replica({ in_flight: 1 })] }
  expect(summary(o)).toBe('1 of 1 node live · 1 of 2 models loaded · 3 requests in flight')
})

test('an engine is missing only where that is known', () => {
  const engine = (name: string) => ({ node: 'p', node_name: 'attic', name, version: '', from: '', path: '', build: '' })
  expect(lacksEngine(node({ engines: [engine('sim')] }))).toBe(true)
  expect(lacksEngine(node({ engines: [engine('sim'), engine('llamacpp')] }))).toBe(false)
  expect(lacksEngine(node({ state: 'dead' }))).toBe(false)
})

test('a setting says who decided it', () => {
  const s: MeshSetting = {
    name: 'log.level', kind: 'choice', choices: [], help: '', restart: false, set: false, value: '', here: 'info', origin: 'default', pending: '',
  }
  expect([settingOfMesh(s), settingHere(s)]).toEqual(['not set', 'by default'])
  const own = { ...s, set: true, value: 'debug', origin: 'flag --log-level' }
  expect([settingOfMesh(own), settingHere(own)]).toEqual(['debug', 'by flag --log-level, which has precedence'])
  expect(settingHere({ ...own, origin: 'default', pending: 'debug' })).toBe('a restart brings debug')
})
