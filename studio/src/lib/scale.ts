// Axes: where a number stands, and which round numbers to write beside it.

export interface Axis {
  at: (value: number) => number
  ticks: (count: number) => Tick[]
}

export interface Tick {
  value: number
  text: string
}

/** From the numbers `low` to `high` onto the pixels `from` to `to`; ticks of `whole` numbers where there is no half a step. */
export function linear(low: number, high: number, from: number, to: number, whole = false): Axis {
  return {
    at: (value) => from + ((value - low) / (high - low)) * (to - from),
    ticks: (count) => {
      const step = Math.max(round((high - low) / Math.max(1, count)), whole ? 1 : 0)
      const first = Math.ceil(low / step - 1e-9)
      const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9))
      return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, i) => {
        const value = Number(((first + i) * step).toPrecision(12))
        return { value, text: decimals > 6 ? value.toPrecision(12) : value.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) }
      })
    },
  }
}

export function logarithmic(low: number, high: number, from: number, to: number): Axis {
  const inner = linear(Math.log10(low), Math.log10(high), from, to)
  return {
    at: (value) => inner.at(Math.log10(value)),
    ticks: (count) => {
      const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)]
      const step = Math.max(1, Math.ceil((last - first) / Math.max(1, count)))
      return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, i) => {
        const power = first + i * step
        return { value: 10 ** power, text: power >= -3 && power <= 4 ? String(10 ** power) : `1e${power}`.replace('-', '−') }
      })
    },
  }
}

/** The nearest of 1, 2 or 5 times a power of ten. */
function round(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step))
  const rest = step / power
  return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10)
}
