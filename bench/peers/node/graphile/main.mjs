// graphile-worker with the settings of its page on performance; VARIANT=default leaves them all out.

import { Logger, makeWorkerUtils, run as runWorker } from 'graphile-worker'
import pg from 'pg'

import { config, enqueuers, open, payload, run } from '../adapter.mjs'

const plain = config.variant === 'default'
const steady = config.scenario === 'steady'
const concurrentJobs = config.atOnce ?? 24
const localQueue = { size: Math.max(500, concurrentJobs) }
// Beside producers a fetch brings a few jobs only, unless it waits for a moment after one that was not full.
if (steady) localQueue.refetchDelay = { durationMs: 60, threshold: localQueue.size - 1 }
const fast = {
  concurrentJobs,
  maxPoolSize: 25,
  localQueue,
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

const specs = numbers => numbers.map(n => ({ identifier: 'noop', payload: payload(n) }))

await run({
  bulkChunk: 1000,
  settings: plain
    ? 'defaults'
    : `concurrentJobs ${concurrentJobs}, pool 25, localQueue ${localQueue.size}, completeJobBatchDelay 0; beside producers a refetch delay of 60 ms`,
  bulk: numbers => utils.addJobs(specs(numbers)),
  batch: numbers => utils.addJobs(specs(numbers)),
  single: n => utils.addJob('noop', payload(n)),
  start: ledger => runWorker({
    preset: { worker },
    logger: quiet,
    noHandleSignals: true,
    taskList: { noop: job => ledger.run(job.n) },
  }),
  stop: runner => runner.stop(),
  count: async () => Number((await pool.query('select count(*) from graphile_worker._private_jobs')).rows[0].count),
  close: async () => { await utils.release(); await pool.end() },
})
