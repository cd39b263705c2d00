//! The numbers of a measurement: their names, which stay the same, and what each means.

use std::collections::BTreeMap;

/// Numbers by name; what was not measured is not there. The names are those of [`FIGURES`].
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// Every name there is, and what it means. The guide lists them too.
pub(super) const FIGURES: [(&str, &str); 54] = [
    ("seconds", "from the start to the last durable answer"),
    ("per_second", "jobs in each second"),
    (
        "offered_per_second",
        "jobs that were offered in each second",
    ),
    (
        "of_offered",
        "share of that rate at which jobs were handled meanwhile",
    ),
    ("client_cpu_us", "CPU of this program for each job"),
    ("postgres_cpu_us", "CPU of the whole server for each job"),
    ("client_cpu_percent", "CPU of this program, of one core"),
    (
        "postgres_cpu_percent",
        "CPU of the whole server, of one core",
    ),
    ("wal_bytes", "write-ahead log for each job"),
    (
        "wal_bytes_without_images",
        "the same without full images of pages",
    ),
    ("table_bytes_before", "the job table before"),
    ("table_bytes_after", "the job table after"),
    ("index_bytes_before", "its indexes before"),
    ("index_bytes_after", "its indexes after"),
    (
        "history_bytes_before",
        "the history with its indexes before",
    ),
    ("history_bytes_after", "the history with its indexes after"),
    (
        "start_p50_ms",
        "from before the enqueue to the start of the handler",
    ),
    ("start_p90_ms", ""),
    ("start_p99_ms", ""),
    ("start_p999_ms", ""),
    ("start_max_ms", ""),
    (
        "done_p50_ms",
        "from before the enqueue to the durable completion",
    ),
    ("done_p90_ms", ""),
    ("done_p99_ms", ""),
    ("done_p999_ms", ""),
    ("done_max_ms", ""),
    (
        "claim_p50_ms",
        "one claim of 50 jobs, as workers claim them",
    ),
    ("claim_p90_ms", ""),
    ("claim_p99_ms", ""),
    ("claim_p999_ms", ""),
    ("claim_max_ms", ""),
    (
        "simple_claim_p50_ms",
        "one claim of 50 jobs by rowlock.claim, the form for other languages",
    ),
    (
        "first_start_ms",
        "the first job after the idle time, to its start",
    ),
    (
        "first_done_ms",
        "the first job after the idle time, to its completion",
    ),
    ("late_max_ms", "how late the producer itself was at most"),
    (
        "handlers_allow_per_second",
        "what as many bare sleeps at once manage here",
    ),
    (
        "worker_rss_start_bytes",
        "memory of the worker process when it begins",
    ),
    (
        "worker_rss_max_bytes",
        "memory of the worker process at most",
    ),
    ("of_floor", "share of the machine's floor in the same round"),
    (
        "of_plain",
        "share of a plain INSERT of the same row, or of jobs without the feature",
    ),
    (
        "postgres_cpu_of_plain",
        "CPU of Postgres for each job, against jobs without the feature",
    ),
    (
        "wal_of_plain",
        "write-ahead log for each job, against jobs without the feature",
    ),
    (
        "of_prepared",
        "share of the same transaction with a prepared INSERT",
    ),
    ("of_alone", "share of the same transaction without a job"),
    ("of_possible", "share of what as many bare sleeps manage"),
    (
        "of_clean",
        "share of the same with nobody holding vacuum back",
    ),
    (
        "start_p99_of_clean",
        "p99 to the start, against the same with nobody holding vacuum back",
    ),
    (
        "postgres_cpu_of_clean",
        "CPU of Postgres for each job, against the same",
    ),
    (
        "start_p99_worst_of_clean",
        "p99 in the worst tenth of the time, against p99 with nobody",
    ),
    (
        "postgres_cpu_worst_of_clean",
        "CPU in the worst tenth of the time, against the same",
    ),
    ("of_one", "share of one worker process"),
    ("of_half", "share of half as many worker processes"),
    (
        "claim_of_small",
        "time of a claim against the small backlog",
    ),
    (
        "worker_rss_of_small",
        "memory of the worker process at most, against the small backlog",
    ),
];

/// The middle of some numbers: of an even count, the mean of the two in the middle.
pub(super) fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let high = *numbers.get(middle)?;
    if numbers.len() % 2 == 1 {
        return Some(high);
    }
    Some((numbers[middle - 1] + high) / 2.0)
}

/// The middle of each figure, and its smallest and largest value where there are several.
pub(super) fn middle(all: &[&Figures]) -> (Figures, BTreeMap<&'static str, [f64; 2]>) {
    let mut by_name: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for (name, value) in all.iter().flat_map(|figures| figures.iter()) {
        by_name.entry(name).or_default().push(*value);
    }
    let mut middles = Figures::new();
    let mut spread = BTreeMap::new();
    for (name, mut values) in by_name {
        // Sorts them, so that the ends are the extremes.
        let Some(median) = median(&mut values) else {
            continue;
        };
        middles.insert(name, median);
        if let ([least, .., most], true) = (&values[..], all.len() > 1) {
            spread.insert(name, [*least, *most]);
        }
    }
    (middles, spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some(3.0));
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn the_middle_of_rounds_has_a_spread() {
        let round = |v| Figures::from([("per_second", v)]);
        let (one, nothing) = middle(&[&round(5.0)]);
        assert_eq!((one["per_second"], nothing.len()), (5.0, 0));
        let (three, spread) = middle(&[&round(5.0), &round(1.0), &round(9.0)]);
        assert_eq!(
            (three["per_second"], spread["per_second"]),
            (5.0, [1.0, 9.0])
        );
    }

    #[test]
    fn the_guide_names_every_figure() {
        let guide = include_str!("../../../../docs/guide/benchmarks.md");
        for (name, _) in FIGURES {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }
}
