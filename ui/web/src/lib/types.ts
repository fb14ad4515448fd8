// The answers of /admin/v1 as package ui of the daemon writes them. A Go test
// compares the fields of each interface with the Go type of the same name.
// null means "not known", never zero.

export interface Problem {
  text: string
  fix: string
}

export interface NodeInfo {
  id: string
  name: string
  version: string
  pid: number
  state_dir: string
  api: string[]
  mesh: string[]
  uptime_seconds: number
  ui_hint: string
  command: string
}

export interface MeshInfo {
  id: string
  provisional: boolean
  members: number
  live: number
}

export interface Status {
  schema_version: number
  verdict: string
  problems: Problem[]
  node: NodeInfo
  mesh: MeshInfo
}

export interface Device {
  id: string
  kind: string
  name: string
  memory_total: number | null
  memory_free: number | null
  busy_percent: number | null
  celsius: number | null
}

export interface Hardware {
  arch: string
  os: string
  threads: number | null
  ram_total: number | null
  ram_free: number | null
  devices: Device[]
  notes: string[]
}

export interface Engine {
  node: string
  node_name: string
  name: string
  version: string
  from: string
  path: string
  build: string
}

export interface Fetch {
  source: string
  as: string
  phase: string
  done: number
  total: number | null
}

export interface Node {
  id: string
  name: string
  role: string
  state: string
  version: string
  last_contact_seconds: number | null
  skew_seconds: number | null
  round_trip_ms: number | null
  last_sync_seconds: number | null
  mismatch: string
  remembers_deletions: number
  path: string
  api: string[]
  stopping: boolean
  labels: string[]
  location: string
  cordoned: boolean
  draining: boolean
  cordoned_devices: string[]
  hardware: Hardware
  engines: Engine[]
  disk_free: number | null
  fetches: Fetch[]
}

export interface Sighting {
  id: string
  name: string
  addresses: string[]
  reason: string
}

/** Bounds of requests, in tokens; 0: the engine decides. */
export interface ModelLimits {
  context: number
  max_output: number
  end_repetition: boolean
}

export interface Model {
  id: string
  name: string
  aliases: string[]
  source: string
  digest: string
  size_bytes: number | null
  format: string
  architecture: string
  state: string
  wanted: number
  max: number
  limits: ModelLimits
  idle_seconds: number
  pin: string
  require: string[]
  forbid: string[]
  declared_on: string
  declared_in: string
  embeddings: boolean
  context: number | null
  memory_need: number | null
  loaded: boolean
  loaded_on: string[]
  on_disk: string[]
  problem: string
  fix: string
}

export interface Replica {
  model: string
  slot: number
  node: string
  node_name: string
  epoch: number
  state: string
  state_seconds: number | null
  reason: string
  last_lines: string[]
  engine: string
  profile: string
  device: string
  context: number | null
  slots: number | null
  in_flight: number | null
  waiting: number | null
  kv_tokens: number | null
  kv_use: number | null
  restarts: number
  adopted: boolean
  pid: number | null
}

export interface Overview {
  schema_version: number
  status: Status
  nodes: Node[]
  seen: Sighting[]
  models: Model[]
  replicas: Replica[]
  settings: MeshSetting[]
}

export interface MeshSetting {
  name: string
  kind: string
  choices: string[]
  help: string
  restart: boolean
  set: boolean
  value: string
  here: string
  origin: string
  pending: string
}

export interface SessionRequest {
  code: string
}

export interface SessionResult {
  schema_version: number
  expires: string
}
