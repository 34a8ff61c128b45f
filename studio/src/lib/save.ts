// A figure as a file: the picture as it stands on the page, its numbers, or one page that shows it anywhere.
const SVG = 'http://www.w3.org/2000/svg'
const STYLES = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray', 'stroke-linecap', 'opacity',
  'font-family', 'font-size', 'font-weight', 'text-anchor', 'dominant-baseline', 'image-rendering',
]

/** The element redrawn as SVG: boxes, text, canvases and pictures where the browser put them. `data-screen` stays out. */
export function svgOf(root: HTMLElement): SVGSVGElement {
  root.dataset.saving = '' // controls make room; nothing is painted before it is taken back
  try {
    return redrawn(root)
  } finally {
    delete root.dataset.saving
  }
}

function redrawn(root: HTMLElement): SVGSVGElement {
  const out = document.createElementNS(SVG, 'svg')
  const origin = root.getBoundingClientRect()
  const size = { right: 0, bottom: 0 }
  const put = (name: string, box: DOMRect, more: Record<string, string | number>) => {
    const node = document.createElementNS(SVG, name)
    const where = { x: box.left - origin.left, y: box.top - origin.top, width: box.width, height: box.height }
    for (const [key, value] of Object.entries({ ...where, ...more })) {
      node.setAttribute(key, typeof value === 'number' ? String(Math.round(value * 100) / 100) : value)
    }
    size.right = Math.max(size.right, where.x + box.width)
    size.bottom = Math.max(size.bottom, where.y + box.height)
    out.append(node)
    return node
  }
  const visit = (node: Node) => {
    if (node instanceof Text) return words(node, put)
    if (!(node instanceof HTMLElement || node instanceof SVGSVGElement)) return
    const style = getComputedStyle(node)
    const box = node.getBoundingClientRect()
    if (style.display === 'none' || style.visibility === 'hidden' || style.opacity === '0') return
    if (style.position === 'absolute' && box.width <= 1) return // words for screen readers only
    if (node instanceof SVGSVGElement) {
      const copy = drawn(node)
      const at = put('svg', box, { viewBox: node.getAttribute('viewBox') ?? `0 0 ${box.width} ${box.height}` })
      at.append(...copy.childNodes)
      at.setAttribute('overflow', style.overflow === 'visible' ? 'visible' : 'hidden')
      return
    }
    if (node instanceof HTMLCanvasElement) {
      if (node.width && node.height) {
        const how = { preserveAspectRatio: 'none', style: 'image-rendering:pixelated' }
        const fade = Number(getComputedStyle(node.closest('td') ?? node).opacity)
        put('image', box, { opacity: fade, href: node.toDataURL(), ...how })
      }
      return
    }
    const clear = (colour: string) => colour === 'rgba(0, 0, 0, 0)' || colour === 'transparent'
    const edge = parseFloat(style.borderTopWidth) && parseFloat(style.borderLeftWidth) && style.borderTopStyle !== 'none'
    if (box.width && box.height && (!clear(style.backgroundColor) || edge)) {
      put('rect', box, {
        fill: clear(style.backgroundColor) ? 'none' : style.backgroundColor,
        stroke: edge ? style.borderTopColor : 'none',
        'stroke-width': edge ? style.borderTopWidth : 0,
        rx: parseFloat(style.borderTopLeftRadius) || 0,
      })
    }
    node.childNodes.forEach(visit)
  }
  root.childNodes.forEach(visit)
  const [width, height] = [Math.ceil(size.right) + 16, Math.ceil(size.bottom) + 16]
  const paper = document.createElementNS(SVG, 'rect')
  paper.setAttribute('width', String(width))
  paper.setAttribute('height', String(height))
  paper.setAttribute('fill', getComputedStyle(root).backgroundColor)
  out.prepend(paper)
  out.setAttribute('xmlns', SVG)
  out.setAttribute('width', String(width))
  out.setAttribute('height', String(height))
  out.setAttribute('viewBox', `0 0 ${width} ${height}`)
  return out
}

type Put = (name: string, box: DOMRect, more: Record<string, string | number>) => Element

/** Text line by line: a wrapped run is set word by word, since only the browser knows where it broke. */
function words(node: Text, put: Put) {
  const text = node.data
  if (!text.trim() || !node.parentElement) return
  const style = getComputedStyle(node.parentElement)
  const range = document.createRange()
  range.selectNodeContents(node)
  const pieces = range.getClientRects().length === 1 ? [[0, text.length]] : [...text.matchAll(/\S+/g)].map((m) => [m.index, m.index + m[0].length])
  for (const [from, to] of pieces) {
    range.setStart(node, from)
    range.setEnd(node, to)
    const box = range.getBoundingClientRect()
    if (!box.width) continue
    const at = put('text', box, {
      fill: style.color,
      'font-family': style.fontFamily,
      'font-size': style.fontSize,
      'font-weight': style.fontWeight,
      'dominant-baseline': 'central',
      'xml:space': 'preserve',
    })
    at.setAttribute('y', String(Number(at.getAttribute('y')) + box.height / 2))
    at.removeAttribute('width')
    at.removeAttribute('height')
    at.textContent = text.slice(from, to).replace(/\s+/g, ' ')
  }
}

/** A copy that needs no style sheet. */
function drawn(svg: SVGSVGElement): SVGSVGElement {
  const copy = svg.cloneNode(true) as SVGSVGElement
  const [from, to] = [svg.querySelectorAll('*'), copy.querySelectorAll('*')]
  from.forEach((node, i) => {
    const style = getComputedStyle(node)
    for (const key of STYLES) {
      const value = style.getPropertyValue(key)
      if (value) to[i].setAttribute(key, value)
    }
    to[i].removeAttribute('class')
    to[i].removeAttribute('style')
  })
  return copy
}

export const svgText = (root: HTMLElement): string => new XMLSerializer().serializeToString(svgOf(root))

export async function pngOf(root: HTMLElement, scale = 2): Promise<Blob> {
  const svg = svgOf(root)
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: 'image/svg+xml' }))
  try {
    const image = new Image()
    image.src = url
    await image.decode()
    const canvas = document.createElement('canvas')
    canvas.width = image.width * scale
    canvas.height = image.height * scale
    const pen = canvas.getContext('2d')!
    pen.scale(scale, scale)
    pen.drawImage(image, 0, 0)
    return await new Promise((done, fail) => canvas.toBlob((b) => (b ? done(b) : fail(new Error('the picture is too large'))), 'image/png'))
  } finally {
    URL.revokeObjectURL(url)
  }
}

const MARKER = /(<script id="regard-look" type="application\/json">)null(<\/script>)/

/** figure.html with `carried` in it. `<` is escaped, so no text of a user can end the script it travels in. */
export function filled(page: string, carried: unknown): string {
  if (!MARKER.test(page)) throw new Error('figure.html has no place for the data')
  const data = JSON.stringify(carried).replaceAll('<', '\\u003c')
  return page.replace(MARKER, (_, open, close) => open + data + close)
}

export function download(name: string, data: Blob): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(data)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}
