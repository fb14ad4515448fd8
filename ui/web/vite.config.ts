import { rmSync } from 'node:fs'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig, type Plugin } from 'vite'

// dist also holds a tracked placeholder, so it is not emptied whole: only what
// an earlier build made goes.
const clean: Plugin = {
  name: 'clean-dist',
  apply: 'build',
  buildStart() {
    for (const made of ['assets', 'index.html']) rmSync(`dist/${made}`, { recursive: true, force: true })
  },
}

export default defineConfig({
  plugins: [svelte(), clean],
  base: './', // relative, so that the page also works behind a path prefix
  build: {
    target: 'es2022',
    emptyOutDir: false,
    // Data URLs would need holes in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
})
