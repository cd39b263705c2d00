// What the adapters in JavaScript share: the protocol with the harness, the scenarios, and the ledger that sees to it that each job
// ran exactly once. The same as rust/adapter; see there and README.md for what each scenario means.

import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'

const BATCH = 100
// How many jobs each producer enqueues before it is measured.
const WARM_UP = 2

const number = (name, otherwise) => Number(process.env[name] ?? otherwise)

export const config = {
  scenario: process.argv[2],
  url: process.env.DATABASE_URL,
  jobs: number('JOBS', 10000),
  producers: number('PRODUCERS', 4),
  // Who load in bulk.
  loaders: number('LOADERS', 4),
  rounds: number('ROUNDS', 1),
  // How many handlers are to be at work at once, and how long each takes, where a scenario says so.
  atOnce: number('HANDLER_MS', 0) > 0 ? number('WORKERS', 100) : null,
  handlerMs: number('HANDLER_MS', 0),
  variant: process.env.VARIANT ?? '',
}

// What a job carries: its number, and where large payloads are measured a text beside it that cannot be compressed.
const filler = randomBytes(Math.ceil(number('PAYLOAD_BYTES', 0) * 3 / 4)).toString('base64')
export const payload = n => filler ? { n, filler } : { n }

// How many enqueue at the same time at most. A pool has so many connections open before anything is measured.
export const enqueuers = Math.max(config.producers, config.loaders)

// Calls so many times at once: what holds a connection each time opens them all.
export const together = (times, call) => Promise.all(Array.from({ length: times }, (_, at) => call(at)))

// Opens the connections of one of pg's pools.
export async function open (pool) {
  const held = await together(enqueuers, () => pool.connect())
  held.forEach(client => client.release())
}

class Ledger {
  constructor (jobs, timed) {
    this.runs = new Uint8Array(jobs)
    this.started = timed ? new Float64Array(jobs) : null
    this.count = 0
    this.target = Infinity
    this.reached = () => {}
  }

  // The handler of job `n`: a promise if it takes time.
  run (n) {
    if (this.started) this.started[n] = performance.now()
    if (config.handlerMs) return sleep(config.handlerMs).then(() => this.done(n))
    this.done(n)
  }

  done (n) {
    this.runs[n] += 1
    this.count += 1
    if (this.count === this.target) this.reached()
  }

  // Waits until so many have run; fails when nothing has moved for a minute.
  until (jobs) {
    if (this.count >= jobs) return Promise.resolve()
    return new Promise((resolve, reject) => {
      let seen = this.count
      const watch = setInterval(() => {
        if (this.count === seen) {
          clearInterval(watch)
          reject(new Error(`after ${this.count} of ${jobs} jobs nothing ran for a minute`))
        }
        seen = this.count
      }, 60000)
      this.target = jobs
      this.reached = () => { clearInterval(watch); resolve() }
    })
  }

  exact (jobs) {
    return this.runs.subarray(0, jobs).every(runs => runs === 1)
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

async function ready (phase) {
  console.log(`ready ${phase}`)
  const { value } = await lines.next()
  if (value?.trim() !== 'go') throw new Error(`expected \`go\`, not ${value}`)
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// A peer has: bulkChunk, settings, bulk(numbers), batch(numbers), single(n), start(ledger) -> worker, stop(worker),
// count() -> jobs whose completion is not stored yet, close(). Its connections for enqueuers are open.
export async function run (peer) {
  const { scenario, jobs, rounds, producers, loaders } = config
  const report = (phase, count, began, ended, exact, more = {}) => {
    const seconds = (ended - began) / 1000
    console.log(JSON.stringify({ phase, jobs: count, seconds, exact, settings: peer.settings, ...more }))
  }

  const produce = async (first, count, size, workers, call) => {
    let next = 0
    await together(workers, async () => {
      while (next < count) {
        const from = next
        next += size
        const length = Math.min(size, count - from)
        await call(Array.from({ length }, (_, at) => first + from + at))
      }
    })
  }

  // Each producer enqueues a few that do not count, all at the same time: then its connection is open and its statement known.
  const warmUp = () => together(producers, async producer => {
    for (let at = 0; at < WARM_UP; at++) await peer.single(jobs + producer * WARM_UP + at)
  })

  // Waits until all have run and their completion is stored, and says when that was: what a count sees was so when it began.
  const finished = async (ledger, count) => {
    await ledger.until(count)
    const ran = performance.now()
    for (;;) {
      await sleep(2)
      const looked = performance.now()
      if (await peer.count() === 0) return looked
      if (looked - ran > 60000) throw new Error('jobs ran, but are not finished after a minute')
    }
  }

  const bulk = async round => {
    await ready('bulk')
    const began = performance.now()
    await produce(round * jobs, jobs, peer.bulkChunk, loaders, numbers => peer.bulk(numbers))
    const ended = performance.now()
    report('bulk', jobs, began, ended, await peer.count() === jobs)
  }

  const scenarios = {
    bulk: () => bulk(0),

    async single () {
      await warmUp()
      const before = await peer.count()
      await ready('single')
      const began = performance.now()
      await produce(0, jobs, 1, producers, ([n]) => peer.single(n))
      const ended = performance.now()
      report('single', jobs, began, ended, await peer.count() === before + jobs)
    },

    async drain () {
      const ledger = new Ledger(jobs * rounds, false)
      for (let round = 0; round < rounds; round++) {
        await bulk(round)
        await ready('drain')
        const began = performance.now()
        const worker = await peer.start(ledger)
        const soFar = (round + 1) * jobs
        const ended = await finished(ledger, soFar)
        report('drain', jobs, began, ended, ledger.exact(soFar))
        await peer.stop(worker)
      }
      return ledger.exact(jobs * rounds)
    },

    async steady () {
      const count = Math.ceil(jobs / BATCH) * BATCH
      const ledger = new Ledger(count, false)
      const worker = await peer.start(ledger)
      await ready('steady')
      const began = performance.now()
      await produce(0, count, BATCH, producers, numbers => peer.batch(numbers))
      const ended = await finished(ledger, count)
      report('steady', count, began, ended, ledger.exact(count))
      await peer.stop(worker)
      return ledger.exact(count)
    },

    async latency () {
      const ledger = new Ledger(jobs, true)
      const worker = await peer.start(ledger)
      await sleep(1000)
      await ready('latency')
      const began = performance.now()
      const waits = []
      for (let n = 0; n < jobs; n++) {
        await sleep(40 + n * 17 % 61)
        const before = performance.now()
        await peer.single(n)
        await ledger.until(n + 1)
        waits.push(Math.round((ledger.started[n] - before) * 1000))
      }
      report('latency', jobs, began, performance.now(), ledger.exact(jobs), { waits_us: waits })
      await peer.stop(worker)
      return ledger.exact(jobs)
    },
  }

  if (!scenarios[scenario]) throw new Error(`nobody knows a scenario ${scenario}`)
  const exact = await scenarios[scenario]()
  if (exact === false) throw new Error('some jobs did not run exactly once')
  await peer.close()
  process.exit(0)
}
