//! What the library counts through the `metrics` facade, for Prometheus.

use std::time::Duration;

use anyhow::Context;
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// From a millisecond to ten minutes: waits and runs of jobs span that much.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0,
    600.0,
];
const JOBS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

/// Counts from now on. Once for each process, before a worker is made.
pub(super) fn install() -> anyhow::Result<PrometheusHandle> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_batch".into()), &JOBS)?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).context("cannot count for Prometheus")?;
    describe();
    Ok(handle)
}

/// Histograms gather what is recorded until somebody looks; so somebody looks now and then.
pub(super) async fn keep_up(metrics: PrometheusHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(5));
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}

fn describe() {
    describe_counter!("rowlock_claimed_total", "Jobs claimed");
    describe_counter!("rowlock_finished_total", "Attempts that ended, by outcome");
    describe_counter!(
        "rowlock_lost_total",
        "Acknowledgements refused because the lease had gone to somebody else"
    );
    describe_counter!(
        "rowlock_parked_total",
        "Poison, expired and cancelled jobs put away by a claim"
    );
    describe_histogram!("rowlock_wait_seconds", Unit::Seconds, "From due to claimed");
    describe_histogram!("rowlock_run_seconds", Unit::Seconds, "In the handler");
    describe_histogram!(
        "rowlock_claim_seconds",
        Unit::Seconds,
        "One claim statement"
    );
    describe_histogram!(
        "rowlock_ack_seconds",
        Unit::Seconds,
        "One flush of acknowledgements"
    );
    describe_histogram!("rowlock_ack_batch", "Jobs in one flush of acknowledgements");
    describe_counter!(
        "rowlock_table_rows_total",
        "Rows of tables that are queues, by what became of them"
    );
    describe_counter!(
        "rowlock_table_batches_total",
        "Batches of rows that were committed or lost"
    );
    describe_gauge!("rowlock_running", "Jobs in handlers of this worker");
}
