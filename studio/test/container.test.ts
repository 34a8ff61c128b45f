import { describe, expect, test } from 'vitest'
import { Container, fromBase64, half, toBase64 } from '../src/lib/container'

/** A container written by hand: length, header, zeros up to a multiple of 8, tensors. */
function made(header: object, tensors: ArrayBuffer): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header))
  const start = Math.ceil((4 + text.length) / 8) * 8
  const all = new Uint8Array(start + tensors.byteLength)
  new DataView(all.buffer).setUint32(0, text.length, true)
  all.set(text, 4)
  all.set(new Uint8Array(tensors), start)
  return all.buffer
}

const bytes = new ArrayBuffer(40)
const view = new DataView(bytes)
;[1.5, -2, NaN].forEach((x, i) => view.setFloat32(4 * i, x, true))
;[0x3c00, 0xc000, 0x7e00, 0x0001].forEach((x, i) => view.setUint16(16 + 2 * i, x, true))
;[0, 51, 255].forEach((x, i) => view.setUint8(24 + i, x))
;[7, -1].forEach((x, i) => view.setInt32(32 + 4 * i, x, true))
const tensors = {
  a: { dtype: 'f32', shape: [3], offset: 0 },
  b: { dtype: 'f16', shape: [2, 2], offset: 16 },
  c: { dtype: 'u8', shape: [3], offset: 24, scale: 0.5 },
  d: { dtype: 'i32', shape: [2], offset: 32 },
}

describe('a container', () => {
  test.each(['', 'x', 'xx', 'é', '␣␣␣'])('is read whatever the length of its header (%s)', (pad) => {
    const c = new Container<{ pad: string }>(made({ pad, tensors }, bytes))
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

  test('cut short is said, not drawn', () => {
    const whole = made({ tensors }, bytes)
    expect(() => new Container(whole.slice(0, 3))).toThrow('cut short')
    expect(() => new Container(whole.slice(0, 40))).toThrow('cut short')
    expect(() => new Container(whole.slice(0, -8)).tensor('d')).toThrow('d does not fit')
    expect(() => new Container(whole).tensor('z')).toThrow('z')
    expect(() => new Container(whole).levels('a')).toThrow('a')
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
