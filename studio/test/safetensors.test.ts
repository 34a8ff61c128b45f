import { describe, expect, test } from 'vitest'
import { fromBase64, half, Safetensors, toBase64 } from '../src/lib/safetensors'

/** A file written by hand: length, JSON padded with spaces to a multiple of 8, data. */
function made(header: object, entries: object, data: ArrayBuffer): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify({ __metadata__: { header: JSON.stringify(header) }, ...entries }))
  const length = Math.ceil(text.length / 8) * 8
  const all = new Uint8Array(8 + length + data.byteLength).fill(32)
  new DataView(all.buffer).setBigUint64(0, BigInt(length), true)
  all.set(text, 8)
  all.set(new Uint8Array(data), 8 + length)
  return all.buffer
}

const bytes = new ArrayBuffer(31)
const view = new DataView(bytes)
;[1.5, -2, NaN].forEach((x, i) => view.setFloat32(4 * i, x, true))
;[7, -1].forEach((x, i) => view.setInt32(12 + 4 * i, x, true))
;[0x3c00, 0xc000, 0x7e00, 0x0001].forEach((x, i) => view.setUint16(20 + 2 * i, x, true))
;[0, 51, 255].forEach((x, i) => view.setUint8(28 + i, x))
const entries = {
  a: { dtype: 'F32', shape: [3], data_offsets: [0, 12] },
  d: { dtype: 'I32', shape: [2], data_offsets: [12, 20] },
  b: { dtype: 'F16', shape: [2, 2], data_offsets: [20, 28] },
  c: { dtype: 'U8', shape: [3], data_offsets: [28, 31] },
}

describe('a safetensors file', () => {
  test.each(['', 'x', 'xx', 'é', '␣␣␣'])('is read whatever the length of its header (%s)', (pad) => {
    const c = new Safetensors<{ pad: string }>(made({ pad, scales: { c: 0.5 } }, entries, bytes))
    expect(c.header.pad).toBe(pad)
    expect([...c.tensor('a').data]).toEqual([1.5, -2, NaN])
    expect(c.tensor('b').shape).toEqual([2, 2])
    expect([...c.tensor('b').data]).toEqual([1, -2, NaN, 2 ** -24])
    expect(c.tensor('c').data[1]).toBeCloseTo(0.1, 6)
    expect(c.levels('c')).toMatchObject({ scale: 0.5 })
    expect([...c.levels('c').data]).toEqual([0, 51, 255])
    expect([...c.tensor('d').data]).toEqual([7, -1])
    expect(c.has('a') && !c.has('z')).toBe(true)
  })

  test('truncated is an error', () => {
    const whole = made({}, entries, bytes)
    expect(() => new Safetensors(whole.slice(0, 3))).toThrow('truncated')
    expect(() => new Safetensors(whole.slice(0, 40))).toThrow('truncated')
    expect(() => new Safetensors(whole.slice(0, -1)).tensor('c')).toThrow('c does not fit')
    expect(() => new Safetensors(whole).tensor('z')).toThrow('z')
    expect(() => new Safetensors(whole).levels('a')).toThrow('a')
  })

  test('travels as base64', () => {
    const long = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 7) % 256).buffer
    expect(toBase64(Uint8Array.of(77, 97, 110, 255).buffer)).toBe('TWFu/w==') // Man, of RFC 4648
    expect(Array.from(new Uint8Array(fromBase64(toBase64(long)))).join()).toBe(Array.from(new Uint8Array(long)).join())
  })
})

test('half precision: values of IEEE 754-2008', () => {
  const known: [number, number][] = [
    [0x0000, 0], [0x3c00, 1], [0x3555, 0.333251953125], [0x7bff, 65504], [0x0400, 2 ** -14], [0x03ff, (1023 / 1024) * 2 ** -14],
    [0xfc00, -Infinity], [0x7c00, Infinity],
  ]
  for (const [bits, value] of known) expect(half(bits)).toBe(value)
  expect(Object.is(half(0x8000), -0)).toBe(true)
})
