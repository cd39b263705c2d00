//! Scales of plots: where an axis ends, and what stands at it. Pure.

/// The smallest of 1, 2, 2.5, 5 or 10 times a power of ten that is not below the value.
pub(super) fn nice_end(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let nice = steps.iter().map(|s| s * power).find(|s| *s >= value);
    nice.unwrap_or(10.0 * power)
}

/// A number with as many digits as it needs.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => crate::say::number(value.round() as u64),
        v if v >= 10.0 => trim(format!("{value:.1}")),
        _ => trim(format!("{value:.2}")),
    }
}

fn trim(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_round_and_large_enough() {
        for (value, end) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (2.3, 2.5),
            (4.0, 5.0),
            (77.0, 100.0),
            (261_000.0, 500_000.0),
            (0.03, 0.05),
        ] {
            let nice = nice_end(value);
            assert!((nice - end).abs() < end * 1e-9, "{value}: {nice}");
        }
        assert_eq!(nice_end(f64::NAN), 1.0);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (1.234, "1.23"),
            (25.0, "25"),
            (12.34, "12.3"),
            (261_234.5, "261,235"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
