import { svelte } from '@sveltejs/vite-plugin-svelte'
import { viteSingleFile } from 'vite-plugin-singlefile'
import { defineConfig } from 'vitest/config'

// Two builds of one page: index.html with its assets, which the server sends, and figure.html, one file that carries a look.
export default defineConfig(({ mode }) => ({
  base: './',
  plugins: mode === 'figure' ? [svelte(), viteSingleFile()] : [svelte()],
  build: {
    outDir: '../src/regard/serve/page',
    emptyOutDir: mode !== 'figure',
    modulePreload: false,
    target: 'es2022',
    rolldownOptions: { checks: { pluginTimings: false }, input: mode === 'figure' ? 'figure.html' : 'index.html' },
  },
  test: { include: ['test/**/*.test.ts'] },
}))
