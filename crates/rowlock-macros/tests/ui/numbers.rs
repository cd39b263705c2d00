use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = 5)]
struct High {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = -5)]
struct Low {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = 99999999999999)]
struct Huge {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = "high")]
struct Word {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = 1.5)]
struct Fraction {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", priority = 1 + 1)]
struct Sum {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", max_attempts = 0)]
struct Never {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", max_attempts = 1001)]
struct Forever {}

fn main() {}
