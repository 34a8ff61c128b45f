// An answer of the server: a safetensors file (length, JSON, data) whose metadata holds a header of JSON.

interface Entry {
  dtype: 'U8' | 'F16' | 'F32' | 'I32'
  shape: number[]
  data_offsets: [number, number]
}

export interface Tensor {
  data: Float32Array
  shape: number[]
}

export class Safetensors<H = Record<string, unknown>> {
  readonly header: H
  private readonly entries: Record<string, Entry>
  private readonly scales: Record<string, number> // what 255 stands for in tensors of bytes
  private readonly start: number

  constructor(readonly bytes: ArrayBuffer) {
    const length = bytes.byteLength >= 8 ? Number(new DataView(bytes).getBigUint64(0, true)) : 0
    this.start = 8 + length
    if (length === 0 || this.start > bytes.byteLength) throw new Error('the answer is truncated: no complete header')
    const { __metadata__, ...entries } = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)))
    this.entries = entries
    const header = JSON.parse(__metadata__.header)
    this.header = header
    this.scales = header.scales ?? {}
  }

  has(name: string): boolean {
    return name in this.entries
  }

  /** The tensor as float32; bytes are scaled back to what they stand for, whole numbers are exact up to 2^24. */
  tensor(name: string): Tensor {
    const { dtype, shape, at } = this.find(name)
    const count = size(shape)
    switch (dtype) {
      case 'F32':
        return { data: new Float32Array(this.bytes, at, count), shape }
      case 'I32':
        return { data: Float32Array.from(new Int32Array(this.bytes, at, count)), shape }
      case 'F16':
        return { data: Float32Array.from(new Uint16Array(this.bytes, at, count), half), shape }
      case 'U8': {
        const step = (this.scales[name] ?? 1) / 255
        return { data: Float32Array.from(new Uint8Array(this.bytes, at, count), (x) => x * step), shape }
      }
    }
  }

  /** Eight-bit values as they are, for thumbnails: 255 is the largest weight. */
  levels(name: string): { data: Uint8Array; shape: number[]; scale: number } {
    const { dtype, shape, at } = this.find(name)
    if (dtype !== 'U8') throw new Error(`the answer has no thumbnails called ${name}`)
    return { data: new Uint8Array(this.bytes, at, size(shape)), shape, scale: this.scales[name] ?? 1 }
  }

  private find(name: string): Entry & { at: number } {
    const entry = this.entries[name]
    if (!entry) throw new Error(`the answer has no tensor called ${name}`)
    if (this.start + entry.data_offsets[1] > this.bytes.byteLength) throw new Error(`the answer is truncated: ${name} does not fit`)
    return { ...entry, at: this.start + entry.data_offsets[0] }
  }
}

const size = (shape: number[]): number => shape.reduce((a, b) => a * b, 1)

/** IEEE 754 half precision, from its 16 bits. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction
}

export function toBase64(bytes: ArrayBuffer): string {
  const all = new Uint8Array(bytes)
  let text = ''
  for (let i = 0; i < all.length; i += 0x8000) text += String.fromCharCode(...all.subarray(i, i + 0x8000))
  return btoa(text)
}

export function fromBase64(text: string): ArrayBuffer {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer
}
