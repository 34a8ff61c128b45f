// A container is one answer of the server: a length, a JSON header, then tensors, each on a multiple of 8 bytes.

interface Place {
  dtype: 'u8' | 'f16' | 'f32' | 'i32'
  shape: number[]
  offset: number
  scale?: number
}

export interface Tensor {
  data: Float32Array
  shape: number[]
}

export class Container<H = Record<string, unknown>> {
  readonly header: H
  private readonly places: Record<string, Place>
  private readonly start: number

  constructor(readonly bytes: ArrayBuffer) {
    const length = bytes.byteLength >= 4 ? new DataView(bytes).getUint32(0, true) : 0
    if (length === 0 || 4 + length > bytes.byteLength) throw new Error('the answer is cut short: no whole header')
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)))
    this.header = header
    this.places = header.tensors ?? {}
    this.start = Math.ceil((4 + length) / 8) * 8
  }

  has(name: string): boolean {
    return name in this.places
  }

  /** The tensor as float32; bytes are scaled back to what they stand for, whole numbers are kept exactly up to 2^24. */
  tensor(name: string): Tensor {
    const place = this.places[name]
    if (!place) throw new Error(`the answer has no tensor called ${name}`)
    const count = size(place.shape)
    const at = this.start + place.offset
    const width = { u8: 1, f16: 2, f32: 4, i32: 4 }[place.dtype]
    if (at + count * width > this.bytes.byteLength) throw new Error(`the answer is cut short: ${name} does not fit`)
    switch (place.dtype) {
      case 'f32':
        return { data: new Float32Array(this.bytes, at, count), shape: place.shape }
      case 'i32':
        return { data: Float32Array.from(new Int32Array(this.bytes, at, count)), shape: place.shape }
      case 'f16':
        return { data: Float32Array.from(new Uint16Array(this.bytes, at, count), half), shape: place.shape }
      case 'u8': {
        const step = (place.scale ?? 1) / 255
        return { data: Float32Array.from(new Uint8Array(this.bytes, at, count), (x) => x * step), shape: place.shape }
      }
    }
  }

  /** Eight-bit values as they are, for thumbnails: 255 is the largest weight. */
  levels(name: string): { data: Uint8Array; shape: number[]; scale: number } {
    const place = this.places[name]
    if (place?.dtype !== 'u8') throw new Error(`the answer has no thumbnails called ${name}`)
    const data = new Uint8Array(this.bytes, this.start + place.offset, size(place.shape))
    return { data, shape: place.shape, scale: place.scale ?? 1 }
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
