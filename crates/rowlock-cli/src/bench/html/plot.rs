//! Plots as SVG: bars and lines. Pure.

use std::fmt::Write;

use super::escape;
use super::scale::{nice_end, short};

pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The smallest and the largest value of several rounds.
    pub(super) spread: Option<[f64; 2]>,
    /// There to be compared with, so less bright.
    pub(super) is_reference: bool,
}

/// What stands after a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Said(&'static str),
    /// As sizes are said: kB, MB, GB.
    Bytes,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Said(unit) => format!("{}{unit}", short(value)),
            Self::Bytes => crate::say::bytes(value as u64),
        }
    }
}

pub(super) struct Series {
    pub(super) label: String,
    /// In order of time, in seconds.
    pub(super) points: Vec<(f64, f64)>,
    /// How long it took in all.
    pub(super) end_s: f64,
}

const WIDTH: f64 = 960.0;
/// Where the bars begin and end; the labels are to the left, the values to the right.
const LEFT: f64 = 390.0;
const RIGHT: f64 = 850.0;
const ROW: f64 = 26.0;
/// The most characters of a label that fit.
const LABEL_MAX: usize = 58;

/// One bar under the other; nothing if there are none.
pub(super) fn bars(title: &str, unit: Unit, bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let most = |bar: &Bar| bar.spread.map_or(bar.value, |[_, most]| most);
    let end = nice_end(bars.iter().map(most).fold(0.0, f64::max));
    let x = |value: f64| LEFT + (value / end).clamp(0.0, 1.0) * (RIGHT - LEFT);
    let height = ROW * bars.len() as f64 + 4.0;
    let mut svg = String::new();
    for (n, bar) in bars.iter().enumerate() {
        let top = ROW * n as f64 + 4.0;
        let middle = top + 9.0;
        let label = crate::say::clip(&bar.label, LABEL_MAX);
        let class = if bar.is_reference { "other" } else { "ours" };
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>",
            LEFT - 10.0,
            middle + 4.5,
            escape(&label),
            (x(bar.value) - LEFT).max(1.0),
        );
        if let Some([least, most]) = bar.spread {
            let _ = write!(
                svg,
                "<line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
                x(least),
                x(most)
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\">{}</text>",
            x(most(bar)) + 8.0,
            middle + 4.5,
            unit.text(bar.value)
        );
    }
    figure(title, height, &svg)
}

/// Several lines over time with what each means below; nothing if there are none.
pub(super) fn lines(title: &str, all: &[Series]) -> String {
    const TOP: f64 = 10.0;
    const BOTTOM: f64 = 230.0;
    const START: f64 = 60.0;
    const END: f64 = WIDTH - 20.0;
    const STEPS: u32 = 5;
    let points = || all.iter().flat_map(|s| &s.points);
    if points().next().is_none() {
        return String::new();
    }
    let (x_end, y_end) = (
        all.iter().map(|s| s.end_s).fold(1e-3, f64::max),
        nice_end(points().map(|p| p.1).fold(0.0, f64::max)),
    );
    let x = |seconds: f64| START + seconds / x_end * (END - START);
    let y = |value: f64| BOTTOM - value / y_end * (BOTTOM - TOP);
    let mut svg = String::new();
    for step in 0..=STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        let (value, seconds) = (y_end * share, x_end * share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{START}\" x2=\"{END}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text class=\"dim\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{} s</text>",
            START - 8.0,
            y(value) + 4.5,
            short(value),
            x(seconds),
            BOTTOM + 18.0,
            short(seconds),
            y = y(value),
        );
    }
    for (n, series) in all.iter().enumerate() {
        let class = format!("s{}", n % 4);
        let path: Vec<String> = series
            .points
            .iter()
            .map(|(seconds, value)| format!("{:.1},{:.1}", x(*seconds), y(*value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            path.join(" ")
        );
        for (seconds, value) in &series.points {
            let _ = write!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                x(*seconds),
                y(*value)
            );
        }
        let row = BOTTOM + 42.0 + 20.0 * n as f64;
        let _ = write!(
            svg,
            "<polyline class=\"{class}\" points=\"{START},{row} {},{row}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            START + 28.0,
            START + 36.0,
            row + 4.5,
            escape(&series.label)
        );
    }
    figure(title, BOTTOM + 42.0 + 20.0 * all.len() as f64, &svg)
}

fn figure(title: &str, height: f64, svg: &str) -> String {
    let title = escape(title);
    format!(
        "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{svg}</svg></figure>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64, spread: Option<[f64; 2]>) -> Bar {
        Bar {
            label: "a <b>".into(),
            value,
            spread,
            is_reference: false,
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let svg = bars(
            "Rates",
            Unit::Said(""),
            &[bar(100.0, None), bar(50.0, Some([25.0, 75.0]))],
        );
        assert!(
            svg.contains("width=\"460.0\"") && svg.contains("width=\"230.0\""),
            "{svg}"
        );
        assert!(svg.contains("x1=\"505.0\" x2=\"735.0\""), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert_eq!(bars("None", Unit::Bytes, &[]), "");
    }

    #[test]
    fn lines_stay_inside() {
        let series = Series {
            label: "nobody".into(),
            points: vec![(0.5, 0.0), (9.5, 10.0)],
            end_s: 10.0,
        };
        let svg = lines("p99", &[series]);
        assert!(svg.contains("points=\"104.0,230.0 896.0,10.0\""), "{svg}");
        assert_eq!(lines("None", &[]), "");
    }
}
