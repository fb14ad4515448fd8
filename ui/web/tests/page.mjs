// Opens the page in Chromium and prints one JSON line for each check. Started by
// the Go test of package ui, which serves the page and says where by LLMGW_PAGE.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const { boxes, control, shots } = JSON.parse(process.env.LLMGW_PAGE)
const profile = mkdtempSync(join(tmpdir(), 'llmgw-page-'))

const browser = await chromium.launchPersistentContext(profile, {
  executablePath: '/usr/bin/chromium',
  headless: true,
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
  viewport: { width: 1200, height: 900 },
})
browser.setDefaultTimeout(10_000)

// What the browser complained of, such as a breach of the content policy.
let complaints = []

async function open(url, options = {}) {
  await browser.clearCookies()
  const page = await browser.newPage()
  page.on('console', (m) => m.type() === 'error' && complaints.push(m.text()))
  page.on('pageerror', (e) => complaints.push(String(e)))
  if (options.width) await page.setViewportSize({ width: options.width, height: 780 })
  await page.emulateMedia({ colorScheme: options.dark ? 'dark' : 'light' })
  await page.goto(url)
  return page
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true })
}

const unread = () => complaints.filter((c) => !/status of 401|ERR_/.test(c))

// wake makes the page ask at once, as a tab that comes into view does.
const wake = (page) => page.evaluate(() => void document.dispatchEvent(new Event('visibilitychange')))

// widest is what sticks out of the window at the right, if anything.
const widest = (page) =>
  page.evaluate(() => {
    const out = [...document.body.querySelectorAll('*')].filter((e) => {
      const box = e.getBoundingClientRect()
      return box.width > 1 && box.right > innerWidth + 1
    })
    return out.map((e) => `${e.tagName}.${e.className}`).join(' ')
  })

const checks = {
  async 'stranger sees only the login page'() {
    const page = await open(boxes.full.url)
    await page.getByText('This page opens by a link').waitFor()
    const text = await page.locator('body').innerText()
    assert.match(text, /llmgw ui/)
    assert.doesNotMatch(text, /attic|cellar|SmolLM2|mesh /)
    const answer = await page.evaluate(async () => (await fetch('admin/v1/overview')).status)
    assert.equal(answer, 401)
    await shot(page, 'login')
  },

  async 'link opens the page with its data'() {
    const page = await open(boxes.full.links[0])
    await page.getByRole('heading', { name: 'Degraded: 2 problems' }).waitFor()
    assert.equal(new URL(page.url()).hash, '', 'the code stayed in the address bar')
    const text = await page.locator('main').innerText()
    for (const want of ['SmolLM2', 'qwen-tiny', 'cellar', 'RTX 4090', 'out of device memory', '11.0 GiB free of 32.0 GiB',
      'llmgw load lab/sim', '3 of 4 in use', '2 waiting in the engine, 45 % of the KV cache in use', 'heard 4 min ago', 'garage', 'RAM unknown', 'RAM, use unknown', 'discovery.lan', 'GPU-1 is cordoned', '/etc/llmgw/config.yaml on cellar', 'by flag --no-mdns']) {
      assert.ok(text.includes(want), `"${want}" is not on the page`)
    }
    assert.equal(await page.locator('.bar.unknown').count(), 2, 'hatched bars of unknown memory')
    assert.equal(await page.getByRole('meter').count(), 2)
    assert.match(await page.locator('header').innerText(), /data from \d\d:\d\d:\d\d/)
    await page.getByText('came over plain HTTP').waitFor()
    await shot(page, 'full')
  },

  async 'link fails the second time'() {
    const page = await open(boxes.full.links[0])
    await page.getByText('used already').waitFor()
    assert.doesNotMatch(await page.locator('body').innerText(), /attic/)
    await shot(page, 'link-used')
  },

  async 'session survives a reload and ends by logging out'() {
    const page = await open(boxes.full.links[1])
    await page.getByRole('heading', { name: 'Models' }).waitFor()
    await page.reload()
    await page.getByRole('heading', { name: 'Models' }).waitFor()
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByText('You are logged out').waitFor()
    await page.reload()
    await page.getByText('This page opens by a link').waitFor()
  },

  async 'code is readable by no script and no storage'() {
    const page = await open(boxes.full.links[2])
    await page.getByRole('heading', { name: 'Models' }).waitFor()
    const seen = await page.evaluate(() => [document.cookie, JSON.stringify(localStorage), location.href])
    assert.deepEqual(seen.slice(0, 2), ['', '{}'])
    const [cookie] = await browser.cookies()
    assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ['llmgw-session', true, 'Strict'])
  },

  async 'text of engines and names is text'() {
    const page = await open(boxes.full.links[3])
    await page.getByText('<script>alert(1)</script>').waitFor()
    assert.equal(await page.locator('main script').count(), 0)
  },

  async 'empty mesh says what to type'() {
    const page = await open(boxes.empty.links[0])
    await page.getByRole('heading', { name: 'OK', exact: true }).waitFor()
    const text = await page.locator('main').innerText()
    for (const want of ['llmgw pull SOURCE --as NAME', 'llmgw token new', 'llmgw join TOKEN', 'llmgw keys new NAME',
      'Nothing is running', 'no GPU', 'llmgw engines install llamacpp']) {
      assert.ok(text.includes(want), `"${want}" is not on the page`)
    }
    await shot(page, 'empty')
  },

  async 'null lists and no nodes leave a page'() {
    const page = await open(boxes.nulls.links[0])
    await page.getByText('No nodes are known').waitFor()
    await page.getByText('No models yet').waitFor()
    await shot(page, 'nulls')
  },

  async 'narrow window shows everything without sideways scrolling'() {
    const page = await open(boxes.full.links[4], { width: 360 })
    await page.getByRole('heading', { name: 'Nodes' }).waitFor()
    assert.equal(await widest(page), '')
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360)
    await shot(page, 'narrow')
    const empty = await open(boxes.empty.links[1], { width: 360 })
    await empty.getByText('No models yet').waitFor()
    assert.equal(await widest(empty), '')
    await shot(empty, 'narrow-empty')
  },

  async 'dark follows the system'() {
    const page = await open(boxes.full.links[5], { dark: true })
    await page.getByRole('heading', { name: 'Nodes' }).waitFor()
    const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
    assert.ok(background.match(/\d+/g).every((n) => Number(n) < 60), `background ${background}`)
    await shot(page, 'dark')
  },

  async 'keyboard reaches the content and the buttons'() {
    const page = await open(boxes.full.links[6])
    await page.getByRole('heading', { name: 'Nodes' }).waitFor()
    await page.keyboard.press('Tab')
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content')
    await page.keyboard.press('Enter')
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main')
    const nameless = await page.locator('button').evaluateAll((all) => all.filter((b) => !(b.ariaLabel || b.textContent.trim())).length)
    assert.equal(nameless, 0)
  },

  async 'text has contrast in both themes'() {
    for (const dark of [false, true]) {
      const page = await open(boxes.full.links[dark ? 7 : 8], { dark })
      await page.getByRole('heading', { name: 'Nodes' }).waitFor()
      const poor = await page.evaluate(poorContrast)
      assert.deepEqual(poor, [], `${dark ? 'dark' : 'light'} theme`)
      await page.close()
    }
  },

  async 'box goes away and comes back'() {
    const page = await open(boxes.full.links[9])
    await page.getByRole('heading', { name: 'Models' }).waitFor()
    await fetch(`${control}/down`)
    await wake(page)
    await page.getByText('The box does not answer').waitFor()
    assert.match(await page.getByRole('alert').innerText(), /You see data from \d\d:\d\d:\d\d/)
    assert.ok((await page.locator('main').innerText()).includes('SmolLM2'), 'the data went with the box')
    await shot(page, 'away')
    await fetch(`${control}/up`)
    await page.getByRole('button', { name: 'Try now' }).click()
    await page.getByRole('alert').waitFor({ state: 'detached' })
  },

  async 'session that ends elsewhere leads to the login page'() {
    const page = await open(boxes.full.links[10])
    await page.getByRole('heading', { name: 'Models' }).waitFor()
    await fetch(`${control}/end-sessions`)
    await wake(page)
    await page.getByText('Your session has ended').waitFor()
    assert.doesNotMatch(await page.locator('body').innerText(), /SmolLM2/)
  },

  async 'copy button works without a clipboard'() {
    const page = await open(boxes.full.links[11])
    const button = page.getByRole('button', { name: 'Copy: llmgw load lab/sim' })
    await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }))
    await button.click()
    await page.getByText('Selected').waitFor()
    assert.equal(await page.evaluate(() => String(getSelection())), 'llmgw load lab/sim')
  },
}

// poorContrast lists texts whose contrast is under 4.5 (WCAG 2.1 AA). It runs in
// the page.
function poorContrast() {
  const light = (c) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2])
  }
  const color = (text) => text.match(/[\d.]+/g).map(Number)
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor)
      if (c.length < 4 || c[3] === 1) return c
    }
    return [255, 255, 255]
  }
  const poor = new Set()
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue
    const [a, b] = [light(color(getComputedStyle(e).color)), light(behind(e))]
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    if (ratio < 4.5) poor.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`)
  }
  return [...poor]
}

try {
  for (const [name, check] of Object.entries(checks)) {
    complaints = []
    const began = performance.now()
    let problem = ''
    try {
      await check()
      assert.deepEqual(unread(), [], 'complaints of the browser')
    } catch (e) {
      problem = e.stack ?? String(e)
    }
    console.log(JSON.stringify({ name, problem, ms: Math.round(performance.now() - began) }))
    for (const page of browser.pages().slice(1)) await page.close()
  }
} finally {
  await browser.close()
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
}
