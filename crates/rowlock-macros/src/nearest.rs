//! "Did you mean": the known word that is nearest to a mistyped one. Pure.

/// The known words as a sentence, with the one that was probably meant.
pub(crate) fn known_words(mistyped: &str, known: &[&str]) -> String {
    let list = known
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ");
    match nearest(mistyped, known) {
        Some(word) => format!("did you mean `{word}`? Known are {list}"),
        None => format!("known are {list}"),
    }
}

/// The known word that takes the fewest changed letters, if those are few.
fn nearest<'k>(mistyped: &str, known: &[&'k str]) -> Option<&'k str> {
    let mistyped = mistyped.to_lowercase();
    known
        .iter()
        .map(|word| (distance(&mistyped, word), *word))
        .filter(|(distance, word)| {
            // `attempts` is far from `max_attempts` by letters, yet plainly meant.
            *distance <= word.len().max(3) / 3 || (mistyped.len() >= 4 && word.contains(&mistyped))
        })
        .min()
        .map(|(_, word)| word)
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped {
                    best.min(rows[i - 2][j - 2] + 1)
                } else {
                    best
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["kind", "queue", "max_attempts", "timeout"];

    #[test]
    fn typing_errors_find_their_word() {
        for (mistyped, meant) in [
            ("knid", Some("kind")),
            ("queu", Some("queue")),
            ("Queue", Some("queue")),
            ("attempts", Some("max_attempts")),
            ("max_atempts", Some("max_attempts")),
            ("time_out", Some("timeout")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(mistyped, KNOWN), meant, "{mistyped}");
        }
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kind", "kind", 0),
            ("knid", "kind", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }
}
