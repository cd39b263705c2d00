// pg-boss tuned: notify, burst while batches are full, large batches, several workers. By default it takes one job every two
// seconds. It keeps finished jobs.

import pg from 'pg'
import { PgBoss } from 'pg-boss'

import { config, enqueuers, payload, run, together } from '../adapter.mjs'

const QUEUE = 'bench'
const BATCH = 500
const WORKERS = 4

const pool = new pg.Pool({ connectionString: config.url, max: 1 })
const boss = new PgBoss({
  connectionString: config.url,
  max: enqueuers + WORKERS + 2,
  idleTimeoutMillis: 0,
  useListenNotify: true,
  supervise: false,
  schedule: false,
})
boss.on('error', error => console.error(error.message))
await boss.start()
await boss.createQueue(QUEUE, { notify: true })
// Its pool is its own: what takes a moment, so many times at once, opens the connections.
await together(enqueuers, () => boss.getDb().executeSql('select pg_sleep(0.1)'))

const insert = numbers => boss.insert(QUEUE, numbers.map(n => ({ data: payload(n) })))

await run({
  bulkChunk: 1000,
  settings: `batchSize ${BATCH}, localConcurrency ${WORKERS}, notify, burstWhenBatchFull, polling 0.5 s, supervise and schedule off; finished jobs are kept`,
  bulk: insert,
  batch: insert,
  single: n => boss.send(QUEUE, payload(n)),
  start: ledger => boss.work(QUEUE, {
    batchSize: BATCH,
    localConcurrency: WORKERS,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
  }, async jobs => { await Promise.all(jobs.map(job => ledger.run(job.data.n))) }),
  stop: () => boss.offWork(QUEUE),
  count: async () => Number((await pool.query(
    `select count(*) from pgboss.job where name = '${QUEUE}' and state <> 'completed'`)).rows[0].count),
  close: async () => { await boss.stop({ graceful: false }); await pool.end() },
})
