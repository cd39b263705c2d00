//! "Did you mean": the known word that is nearest to a mistyped one. Pure.

/// The known word that was probably meant, if one is near enough.
pub(crate) fn nearest<'k>(
    mistyped: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let mistyped = mistyped.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|word| (strsim::osa_distance(&mistyped, &word.to_lowercase()), word))
        .filter(|(distance, word)| {
            // `attempts` is far from `max_attempts` by letters, yet plainly meant.
            *distance <= word.len().max(3) / 3
                || (mistyped.len() >= 4 && (word.contains(&mistyped) || mistyped.contains(word)))
        })
        .min()
        .map(|(_, word)| word)
}

/// `; did you mean "x"?`, or what is known when nothing is near.
pub(crate) fn did_you_mean<'k>(
    mistyped: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> String {
    match nearest(mistyped, known.clone()) {
        Some(word) => format!("did you mean {word:?}?"),
        None => {
            let list: Vec<&str> = known.into_iter().collect();
            format!("known are {}", list.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_or_none() {
        let known = ["concurrency", "max_attempts", "poll", "poll_only"];
        assert_eq!(nearest("concurency", known), Some("concurrency"));
        assert_eq!(nearest("attempts", known), Some("max_attempts"));
        assert_eq!(nearest("poll-only", known), Some("poll_only"));
        assert_eq!(nearest("colour", known), None);
    }
}
