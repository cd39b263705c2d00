//! Tokens: by one of them the database knows which claim a job belongs to.

/// 62 random bits, never 0.
pub(super) fn random_token() -> i64 {
    (rand::random::<i64>() & (i64::MAX >> 1)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_positive_and_never_zero() {
        for _ in 0..1000 {
            assert!(random_token() > 0);
        }
    }
}
