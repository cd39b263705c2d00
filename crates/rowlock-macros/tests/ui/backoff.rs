use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff = "1s")]
struct Value {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff())]
struct Empty {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(max = "1h"))]
struct NoShape {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(linear = "1s", fixed = "1s"))]
struct TwoShapes {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(fixed = "1s", factor = 2))]
struct FactorOfFixed {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(exponential = "1s", factor = 0.5))]
struct Shrinking {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(fixed = "1s", jitter = 1.5))]
struct TooMuchJitter {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(fixed = "1s", jitter = -0.1))]
struct NegativeJitter {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(fixed = "1s", max = "366d"))]
struct TooLong {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(fixed = "1s", max = "1h", max = "2h"))]
struct Twice {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(list("1s", "5")))]
struct BadDelay {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(list()))]
struct NoDelays {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", backoff(exponentail = "1s"))]
struct Unknown {}

fn main() {}
