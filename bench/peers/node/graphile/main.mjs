// graphile-worker with the settings of its page on performance; VARIANT=default leaves them all out.

import { Logger, makeWorkerUtils, run as runWorker } from 'graphile-worker'
import pg from 'pg'

import { config, enqueuers, open, run } from '../adapter.mjs'

const plain = config.variant === 'default'
const fast = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}
const worker = {
  connectionString: config.url,
  ...(plain ? {} : fast),
}
const quiet = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })
const pool = new pg.Pool({ connectionString: config.url, max: enqueuers + 4, idleTimeoutMillis: 0 })
const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet })
await utils.migrate()
await open(pool)

const specs = numbers => numbers.map(n => ({ identifier: 'noop', payload: { n } }))

await run({
  bulkChunk: 1000,
  settings: plain
    ? 'defaults'
    : 'concurrentJobs 24, pool 25, localQueue 500, completeJobBatchDelay 0',
  bulk: numbers => utils.addJobs(specs(numbers)),
  batch: numbers => utils.addJobs(specs(numbers)),
  single: n => utils.addJob('noop', { n }),
  start: ledger => runWorker({
    preset: { worker },
    logger: quiet,
    noHandleSignals: true,
    taskList: { noop: payload => { ledger.run(payload.n) } },
  }),
  stop: runner => runner.stop(),
  count: async () => Number((await pool.query('select count(*) from graphile_worker._private_jobs')).rows[0].count),
  close: async () => { await utils.release(); await pool.end() },
})
