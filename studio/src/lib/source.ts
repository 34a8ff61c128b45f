// Where numbers come from: the server that sent this page, or, in a saved figure, the file itself.
import { fromBase64, Safetensors, toBase64 } from './safetensors'

/** What a saved figure carries: the address of its state and every answer its views had asked for. */
export interface Carried {
  state: string
  look: string // safetensors, in base64; empty where curves alone were saved
  parts: Record<string, { json: unknown } | { tensors: string }>
}

export class Refusal extends Error {
  constructor(message: string, readonly hint: string, readonly status: number) {
    super(message)
  }
}

/** The server stopped working on this question, since the page asked a newer one. */
export class Superseded extends Error {}

const carried: Carried | null = JSON.parse(document.getElementById('regard-look')?.textContent ?? 'null')
export const offline = carried !== null
export const saved = carried && { state: carried.state, look: carried.look }

const KEPT = 60 // answers kept for a second glance, and for the file when a figure is saved
const answers = new Map<string, Promise<unknown>>(
  Object.entries(carried?.parts ?? {}).map(([path, part]) => [
    path,
    Promise.resolve('json' in part ? part.json : new Safetensors(fromBase64(part.tensors))),
  ]),
)

/** An answer of the server. The same question gets the same answer without asking twice. */
function ask<T>(key: string, path: string, init?: RequestInit): Promise<T> {
  const known = answers.get(key)
  if (known) return known as Promise<T>
  if (offline) return Promise.reject(new Refusal('This is not in the saved file.', 'Open the model in regard studio.', 0))
  const answer = request<T>(path, init)
  answers.set(key, answer)
  answer.catch(() => answers.delete(key))
  if (answers.size > KEPT) answers.delete(answers.keys().next().value!)
  return answer
}

async function request<T>(path: string, init?: RequestInit): Promise<T> {
  let reply: Response
  try {
    reply = await fetch(path, init)
  } catch {
    throw new Refusal('The studio does not answer.', 'Is `regard studio` still running? Start it again, then reload.', 0)
  }
  if (reply.status === 204) throw new Superseded('A newer question was asked.')
  if (!reply.ok) {
    const said = await reply.json().catch(() => ({}))
    throw new Refusal(said.error?.message ?? `The studio answered ${reply.status}.`, said.hint ?? '', reply.status)
  }
  const binary = reply.headers.get('content-type')?.startsWith('application/octet-stream')
  return (binary ? new Safetensors(await reply.arrayBuffer()) : await reply.json()) as T
}

export const get = <T>(path: string): Promise<T> => ask<T>(path, path)

export const fresh = <T>(path: string): Promise<T> => (offline ? get<T>(path) : request<T>(path))

/** Keep an answer for the file, when a figure is saved. */
export const keep = (path: string, answer: unknown) => answers.set(path, Promise.resolve(answer))

export const send = <T>(path: string, body: object): Promise<T> => request<T>(path, json(body))

const json = (body: object): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
})

/** `hidden` goes to the server but is not part of the question: which tab asks, and how often it has asked. */
export function post<T>(path: string, body: object, hidden: object = {}): Promise<T> {
  return ask<T>(path + ' ' + JSON.stringify(body), path, json({ ...body, ...hidden }))
}

export function has(start: string): boolean {
  return [...answers.keys()].some((key) => key.startsWith(start))
}

/** All answers to questions that hold one of the words `about`, ready to be carried by a file. */
export async function carry(state: string, look: Safetensors<unknown> | null, about: string[]): Promise<Carried> {
  const parts: Carried['parts'] = {}
  for (const [key, answer] of answers) {
    if (!about.some((word) => key.includes(word))) continue
    const value = await answer.catch(() => null)
    if (value) parts[key] = value instanceof Safetensors ? { tensors: toBase64(value.bytes) } : { json: value }
  }
  return { state, look: look ? toBase64(look.bytes) : '', parts }
}
