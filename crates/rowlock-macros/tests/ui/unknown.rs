use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", max_retries = 3)]
struct Unknown {}

#[derive(Serialize, Deserialize, Job)]
#[job(knid = "a")]
struct Misspelt {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", attempts = 3)]
struct PartOfAWord {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", serde::rename = "b")]
struct Path {}

#[derive(Serialize, Deserialize, Job)]
#[job("a")]
struct Nameless {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", crate = "not a path")]
struct Crate {}

fn main() {}
